/* libnvidia-ml.so.1 of a simulated host: users, memory in use, heat, clocks and modes of a GPU. */
#include "nvml.h"

#include <string.h>

EXPORTED nvml_return nvmlDeviceGetCurrentClocksEventReasons(nvml_device device, unsigned long long *reasons)
{
    return give_number(__func__, device, "clock_reasons", reasons);
}

/* The older name of the same. */
EXPORTED nvml_return nvmlDeviceGetCurrentClocksThrottleReasons(nvml_device device, unsigned long long *reasons)
{
    return give_number(__func__, device, "clock_reasons", reasons);
}

EXPORTED nvml_return nvmlDeviceGetTemperature(nvml_device device, int sensor, unsigned *degrees)
{
    return sensor ? INVALID_ARGUMENT : give_unsigned(__func__, device, "temperature", degrees);
}

EXPORTED nvml_return nvmlDeviceGetTemperatureThreshold(nvml_device device, unsigned threshold, unsigned *degrees)
{
    static const char *const keys[] = {"shutdown_temperature", "slowdown_temperature", "memory_temperature_limit"};
    if (threshold >= sizeof keys / sizeof *keys)
        return NOT_SUPPORTED;
    return give_unsigned(__func__, device, keys[threshold], degrees);
}

EXPORTED nvml_return nvmlDeviceGetMarginTemperature(nvml_device device, struct margin *margin)
{
    unsigned degrees = 0;
    nvml_return result = give_unsigned(__func__, device, "margin", &degrees);
    margin->degrees = (int)degrees;
    return result;
}

EXPORTED nvml_return nvmlDeviceGetCurrPcieLinkWidth(nvml_device device, unsigned *lanes)
{
    return give_unsigned(__func__, device, "pcie_width", lanes);
}

EXPORTED nvml_return nvmlDeviceGetMaxPcieLinkWidth(nvml_device device, unsigned *lanes)
{
    return give_unsigned(__func__, device, "pcie_width_max", lanes);
}

EXPORTED nvml_return nvmlDeviceGetCurrPcieLinkGeneration(nvml_device device, unsigned *generation)
{
    return give_unsigned(__func__, device, "pcie_generation", generation);
}

EXPORTED nvml_return nvmlDeviceGetMaxPcieLinkGeneration(nvml_device device, unsigned *generation)
{
    return give_unsigned(__func__, device, "pcie_generation_max", generation);
}

EXPORTED nvml_return nvmlDeviceGetPersistenceMode(nvml_device device, unsigned *mode)
{
    return give_unsigned(__func__, device, "persistence", mode);
}

EXPORTED nvml_return nvmlDeviceGetGspFirmwareMode(nvml_device device, unsigned *enabled, unsigned *by_default)
{
    *by_default = 1;
    return give_unsigned(__func__, device, "gsp", enabled);
}

EXPORTED nvml_return nvmlDeviceGetGspFirmwareVersion(nvml_device device, char *version)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    return result ? result : give_text(version, 64, state.driver);
}

EXPORTED nvml_return nvmlDeviceGetMigMode(nvml_device device, unsigned *current, unsigned *pending)
{
    nvml_return result = give_unsigned(__func__, device, "mig_mode", current);
    return result ? result : give_unsigned(__func__, device, "mig_mode_pending", pending);
}

EXPORTED nvml_return nvmlDeviceGetMaxMigDeviceCount(nvml_device device, unsigned *count)
{
    *count = 7;
    return give_unsigned(__func__, device, "mig_mode", &(unsigned){0});
}

EXPORTED nvml_return nvmlDeviceGetMigDeviceHandleByIndex(nvml_device device, unsigned place, nvml_device *mig)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    if (result)
        return result;
    if (place >= gpu->mig_count)
        return NOT_FOUND;
    *mig = (nvml_device)((uintptr_t)device | (uintptr_t)(place + 1) << MIG_PLACE_SHIFT);
    return SUCCESS;
}

EXPORTED nvml_return nvmlDeviceGetComputeRunningProcesses_v3(nvml_device device, unsigned *count,
                                                             struct process_info *processes)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    if (result)
        return result;
    unsigned room = *count;
    *count = gpu->user_count;
    if (room < gpu->user_count)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < gpu->user_count; i++)
        processes[i] = (struct process_info){gpu->users[i].pid, gpu->memory_bytes / 2, UINT32_MAX, UINT32_MAX};
    return SUCCESS;
}

EXPORTED nvml_return nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_device device, unsigned *count,
                                                              struct process_info *processes)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    (void)processes;
    *count = 0;
    return result;
}

EXPORTED nvml_return nvmlDeviceGetMemoryInfo(nvml_device device, struct memory_info *memory)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    if (result)
        return result;
    memory->total = gpu->memory_bytes;
    memory->used = gpu->user_count ? gpu->memory_bytes / 2 : 0;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

EXPORTED nvml_return nvmlDeviceGetMemoryInfo_v2(nvml_device device, struct memory_info_v2 *memory)
{
    struct memory_info plain;
    nvml_return result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (result)
        return result;
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return SUCCESS;
}
