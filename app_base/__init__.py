"""What the controller apps share: their base class and the registration of pipeline stages."""
