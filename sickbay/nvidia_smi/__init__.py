"""Reads what `nvidia-smi` prints, in each of its forms, for `sickbay check --from nvidia-smi=FILE`.

Readings go into the same `GpuAnswer` that NVML fills, and are judged by the same rules (`sickbay.gpu_readings`), so
that each rule has one home. What is here knows the forms, and what each of them leaves out.
"""
