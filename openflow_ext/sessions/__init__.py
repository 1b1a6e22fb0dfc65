"""The controller's end of OpenFlow sessions: their limits, their datapath ids, and dead peers."""
