"""The OpenFlow side of the agent: the proxy, one session for each controller, and the extension table."""
