/* libnvidia-ml.so.1 of a simulated host: the readings by which a GPU's health is judged, from the state file. */
#include "nvml.h"

#include <string.h>

EXPORTED nvml_return nvmlDeviceGetFieldValues(nvml_device device, int count, struct field_value *values)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, true, &gpu);
    for (int i = 0; !result && i < count; i++) {
        values[i].result = NOT_SUPPORTED;
        if (values[i].field == FIELD_RECOVERY_ACTION && gpu->recovery_action >= 0) {
            values[i].result = SUCCESS;
            values[i].type = VALUE_UNSIGNED_INT;
            values[i].value.wide = (unsigned long long)gpu->recovery_action;
        }
    }
    return result;
}

EXPORTED nvml_return nvmlDeviceGetRemappedRows(nvml_device device, unsigned *correctable, unsigned *uncorrectable,
                                               unsigned *pending, unsigned *failed)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    if (result)
        return result;
    *correctable = 0;
    *uncorrectable = gpu->remap_pending || gpu->remap_failed;
    *pending = gpu->remap_pending;
    *failed = gpu->remap_failed;
    return SUCCESS;
}

/* Error type 1 is uncorrected; corrected errors do not happen here. */
EXPORTED nvml_return nvmlDeviceGetTotalEccErrors(nvml_device device, int type, int counter, unsigned long long *count)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    (void)counter;
    if (!result)
        *count = type == 1 ? gpu->uncorrected_errors : 0;
    return result;
}

EXPORTED nvml_return nvmlDeviceGetEccMode(nvml_device device, unsigned *current, unsigned *pending)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    *current = *pending = 1;
    return result;
}

EXPORTED nvml_return nvmlDeviceGetMigMode(nvml_device device, unsigned *current, unsigned *pending)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    *current = *pending = 0;
    return result;
}

EXPORTED nvml_return nvmlDeviceGetPersistenceMode(nvml_device device, unsigned *mode)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    *mode = 1;
    return result;
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

EXPORTED nvml_return nvmlDeviceGetNvLinkState(nvml_device device, unsigned link, unsigned *active)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    if (result)
        return result;
    if (link >= gpu->links)
        return gpu->links ? INVALID_ARGUMENT : NOT_SUPPORTED;
    *active = !(gpu->links_down >> link & 1);
    return SUCCESS;
}

EXPORTED nvml_return nvmlDeviceGetGpuFabricInfo(nvml_device device, struct fabric_info *fabric)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    if (result)
        return result;
    memset(fabric, 0, sizeof *fabric);
    fabric->state = (uint8_t)gpu->fabric_state;
    return SUCCESS;
}

/* The version's top byte says whether the caller's structure has a summary (3) or not (2). */
EXPORTED nvml_return nvmlDeviceGetGpuFabricInfoV(nvml_device device, struct fabric_info_versioned *fabric)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    if (result)
        return result;
    memset(fabric->cluster_uuid, 0, sizeof fabric->cluster_uuid);
    fabric->status = SUCCESS;
    fabric->clique = 0;
    fabric->state = (uint8_t)gpu->fabric_state;
    fabric->health_mask = 0;
    if (fabric->version >> 24 >= 3)
        fabric->health_summary = 0;
    return SUCCESS;
}
