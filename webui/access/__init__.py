"""Who may use the dashboard: accounts, tokens, sessions and the checks of every request."""
