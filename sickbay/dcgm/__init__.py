"""The DCGM layer's rules: what `dcgmi` and dcgm-exporter say, read from any of their shapes and judged."""
