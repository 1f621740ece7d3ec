/* libnvidia-ml.so.1 of a simulated host: start, system, handles and identity. The real pynvml loads it, so that the
 * code under test is the code that runs on a GPU node. What a GPU's health is read from is in the other parts.
 */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

static bool lists(const char *names, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = strstr(names, name); at; at = strstr(at + 1, name))
        if ((at == names || at[-1] == ',') && (at[length] == ',' || at[length] == '\0'))
            return true;
    return false;
}

nvml_return enter(struct gpu_state *state, const char *function)
{
    if (!read_gpu_state(state))
        return DRIVER_NOT_LOADED;
    if (lists(state->missing, function))
        return FUNCTION_NOT_FOUND;
    if (state->hangs)
        hang();
    return SUCCESS;
}

nvml_return enter_gpu(struct gpu_state *state, const char *function, nvml_device handle, bool identity,
                      const struct gpu **gpu)
{
    nvml_return result = enter(state, function);
    uintptr_t index = (uintptr_t)handle & ((1 << MIG_PLACE_SHIFT) - 1);
    if (result)
        return result;
    if (index == 0 || index > state->gpu_count)
        return GPU_IS_LOST;
    *gpu = &state->gpus[index - 1];
    if ((*gpu)->hangs)
        hang();
    return identity && (*gpu)->error != GPU_IS_LOST ? SUCCESS : (*gpu)->error;
}

nvml_return give_number(const char *function, nvml_device device, const char *key, unsigned long long *value)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, function, device, false, &gpu);
    if (result)
        return result;
    return gpu_tells(gpu, key, value) ? SUCCESS : NOT_SUPPORTED;
}

nvml_return give_unsigned(const char *function, nvml_device device, const char *key, unsigned *value)
{
    unsigned long long number = 0;
    nvml_return result = give_number(function, device, key, &number);
    *value = (unsigned)number;
    return result;
}

nvml_return give_text(char *target, unsigned size, const char *text)
{
    if (strlen(text) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(target, text);
    return SUCCESS;
}

static nvml_return give_handle(const struct gpu *gpu, nvml_device *device)
{
    if (!gpu)
        return NOT_FOUND;
    if (gpu->error == GPU_IS_LOST)
        return GPU_IS_LOST;
    *device = (nvml_device)(uintptr_t)(gpu->index + 1);
    return SUCCESS;
}

EXPORTED nvml_return nvmlInitWithFlags(unsigned flags)
{
    struct gpu_state state;
    nvml_return result = enter(&state, __func__);
    (void)flags;
    return result ? result : state.init_error;
}

EXPORTED nvml_return nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

EXPORTED nvml_return nvmlShutdown(void)
{
    return SUCCESS;
}

EXPORTED const char *nvmlErrorString(nvml_return result)
{
    switch (result) {
    case SUCCESS: return "Success";
    case 1: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case 10: return "Timeout";
    case FUNCTION_NOT_FOUND: return "Function Not Found";
    case 14: return "Corrupted infoROM";
    case GPU_IS_LOST: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 17: return "GPU access blocked by the operating system";
    case 18: return "Driver/library version mismatch";
    case 19: return "In use by another client";
    default: return "Unknown Error";
    }
}

EXPORTED nvml_return nvmlSystemGetDriverVersion(char *version, unsigned size)
{
    struct gpu_state state;
    nvml_return result = enter(&state, __func__);
    return result ? result : give_text(version, size, state.driver);
}

EXPORTED nvml_return nvmlSystemGetNVMLVersion(char *version, unsigned size)
{
    struct gpu_state state;
    char text[TEXT + 16];
    nvml_return result = enter(&state, __func__);
    snprintf(text, sizeof text, "%d.%s", state.cuda / 1000, state.driver);
    return result ? result : give_text(version, size, text);
}

EXPORTED nvml_return nvmlSystemGetCudaDriverVersion(int *version)
{
    struct gpu_state state;
    nvml_return result = enter(&state, __func__);
    *version = state.cuda;
    return result;
}

EXPORTED nvml_return nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    return nvmlSystemGetCudaDriverVersion(version);
}

EXPORTED nvml_return nvmlDeviceGetCount_v2(unsigned *count)
{
    struct gpu_state state;
    nvml_return result = enter(&state, __func__);
    *count = state.gpu_count;
    return result;
}

EXPORTED nvml_return nvmlDeviceGetHandleByIndex_v2(unsigned index, nvml_device *device)
{
    struct gpu_state state;
    nvml_return result = enter(&state, __func__);
    if (result)
        return result;
    return index < state.gpu_count ? give_handle(&state.gpus[index], device) : INVALID_ARGUMENT;
}

EXPORTED nvml_return nvmlDeviceGetHandleByUUID(const char *uuid, nvml_device *device)
{
    struct gpu_state state;
    nvml_return result = enter(&state, __func__);
    return result ? result : give_handle(find_gpu(&state, uuid), device);
}

EXPORTED nvml_return nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvml_device *device)
{
    struct gpu_state state;
    nvml_return result = enter(&state, __func__);
    return result ? result : give_handle(find_gpu(&state, bus_id), device);
}

/* A MIG device has its own, which here tells its place and its GPU: `MIG-2-<rest of the GPU's>`. */
EXPORTED nvml_return nvmlDeviceGetUUID(nvml_device device, char *uuid, unsigned size)
{
    struct gpu_state state;
    const struct gpu *gpu;
    char text[TEXT + 16];
    uintptr_t place = (uintptr_t)device >> MIG_PLACE_SHIFT;
    nvml_return result = enter_gpu(&state, __func__, device, true, &gpu);
    if (result || place == 0)
        return result ? result : give_text(uuid, size, gpu->uuid);
    snprintf(text, sizeof text, "MIG-%u-%s", (unsigned)place, gpu->uuid + strlen("GPU-"));
    return place > gpu->mig_count ? NOT_FOUND : give_text(uuid, size, text);
}

/* A MIG device is named after its GPU and its profile. */
EXPORTED nvml_return nvmlDeviceGetName(nvml_device device, char *name, unsigned size)
{
    struct gpu_state state;
    const struct gpu *gpu;
    char text[2 * TEXT];
    uintptr_t place = (uintptr_t)device >> MIG_PLACE_SHIFT;
    nvml_return result = enter_gpu(&state, __func__, device, true, &gpu);
    if (result)
        return result;
    if (place > gpu->mig_count)
        return NOT_FOUND;
    snprintf(text, sizeof text, place ? "%s MIG %s" : "%s", gpu->name, place ? gpu->mig[place - 1] : "");
    return give_text(name, size, text);
}

EXPORTED nvml_return nvmlDeviceGetSerial(nvml_device device, char *serial, unsigned size)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, true, &gpu);
    return result ? result : give_text(serial, size, gpu->serial);
}

EXPORTED nvml_return nvmlDeviceGetIndex(nvml_device device, unsigned *index)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, true, &gpu);
    if (!result)
        *index = gpu->index;
    return result;
}

EXPORTED nvml_return nvmlDeviceGetMinorNumber(nvml_device device, unsigned *minor)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, true, &gpu);
    if (!result)
        *minor = gpu->minor;
    return result;
}

EXPORTED nvml_return nvmlDeviceGetPciInfo_v3(nvml_device device, struct pci_info *pci)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, true, &gpu);
    if (result)
        return result;
    memset(pci, 0, sizeof *pci);
    sscanf(gpu->pci, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
    snprintf(pci->bus_id, sizeof pci->bus_id, "%08X:%02X:%02X.0", pci->domain, pci->bus, pci->device);
    snprintf(pci->legacy_bus_id, sizeof pci->legacy_bus_id, "%04X:%02X:%02X.0", pci->domain & 0xffff,
             pci->bus & 0xff, pci->device & 0xff);
    return SUCCESS;
}
