"""The network layer's rules: EFA, InfiniBand and RoCE ports, their counters, and what tools print of them. Pure."""
