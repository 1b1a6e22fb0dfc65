"""The controller's end of OpenFlow sessions: who may open one, who holds a datapath id, who is alive."""
