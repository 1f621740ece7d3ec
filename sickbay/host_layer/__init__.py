"""The host layer's rules: what files and services tell of the machine around its GPUs. Pure."""
