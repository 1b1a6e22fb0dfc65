"""The BPF data plane of the agent: its programs, its maps, and the rules that the maps hold."""
