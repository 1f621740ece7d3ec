/* libcuda.so.1 of a simulated host: start, devices and contexts. The active check's own child loads it, so that the code
 * under test is the code that runs on a GPU node. Memory and programs are in cuda_memory.c.
 */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ATTRIBUTE_COMPUTE_MODE = 20, PROHIBITED = 2, EXCLUSIVE_PROCESS = 3 };

static char visible[MAX_GPUS][TEXT];
static int visible_count = -1;
static cuda_context current;

static cuda_result start(struct gpu_state *state)
{
    if (!read_gpu_state(state))
        return NO_DEVICE;
    if (state->hangs)
        hang();
    return SUCCESS;
}

/* The GPU of a name in CUDA_VISIBLE_DEVICES; a MIG device's is `MIG-<place>-<rest of its GPU's UUID>` (nvml_shim.c). */
static const struct gpu *find_visible(const struct gpu_state *state, const char *name)
{
    char uuid[TEXT];
    char *rest = NULL;
    if (strncmp(name, "MIG-", strlen("MIG-")) != 0)
        return find_gpu(state, name);
    unsigned long place = strtoul(name + strlen("MIG-"), &rest, 10);
    snprintf(uuid, sizeof uuid, "GPU%s", rest);
    const struct gpu *gpu = find_gpu(state, uuid);
    return gpu && place >= 1 && place <= gpu->mig_count ? gpu : NULL;
}

/* As CUDA does it: devices after one that is not there are not seen. */
static void choose_visible(const struct gpu_state *state)
{
    char names[LONG_TEXT];
    const char *wanted = getenv("CUDA_VISIBLE_DEVICES");
    char *rest = names;
    visible_count = 0;
    if (!wanted) {
        for (; visible_count < (int)state->gpu_count; visible_count++)
            snprintf(visible[visible_count], TEXT, "%s", state->gpus[visible_count].uuid);
        return;
    }
    snprintf(names, sizeof names, "%s", wanted);
    for (char *name; (name = strsep(&rest, ",")) && visible_count < MAX_GPUS;) {
        const struct gpu *gpu = find_visible(state, name);
        if (!gpu || gpu->error == 15)
            break;
        snprintf(visible[visible_count++], TEXT, "%s", gpu->uuid);
    }
}

cuda_result error_at(const struct gpu *gpu, enum step step)
{
    int error = gpu->cuda.error;
    enum step its = OPENING;
    if ((error >= FIRST_SYSTEM_ERROR && error <= LAST_SYSTEM_ERROR) || error == NO_DEVICE || error == FABRIC_NOT_READY)
        its = INITIALISING;
    else if (error == OUT_OF_MEMORY)
        its = ALLOCATING;
    else if (error == ECC_UNCORRECTABLE || error == NVLINK_UNCORRECTABLE || error == CONTAINED)
        its = READING;
    else if (error >= FIRST_KERNEL_ERROR && error <= LAST_KERNEL_ERROR)
        its = WAITING;
    return its == step ? error : SUCCESS;
}

const struct gpu *gpu_of(struct gpu_state *state, cuda_context context)
{
    uintptr_t ordinal = (uintptr_t)context;
    if (ordinal == 0 || (int)ordinal > visible_count || !read_gpu_state(state))
        return NULL;
    return find_gpu(state, visible[ordinal - 1]);
}

cuda_context current_context(void)
{
    return current;
}

EXPORTED cuda_result cuInit(unsigned flags)
{
    struct gpu_state state;
    cuda_result result = start(&state);
    if (result || flags)
        return result ? result : INVALID_VALUE;
    choose_visible(&state);
    for (int i = 0; i < visible_count && !result; i++)
        result = error_at(find_gpu(&state, visible[i]), INITIALISING);
    return !result && visible_count == 0 ? NO_DEVICE : result;
}

EXPORTED cuda_result cuDeviceGetCount(int *count)
{
    *count = visible_count;
    return visible_count < 0 ? NOT_INITIALIZED : SUCCESS;
}

EXPORTED cuda_result cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal >= 0 && ordinal < visible_count ? SUCCESS : INVALID_DEVICE;
}

static const struct gpu *gpu_at(struct gpu_state *state, int device)
{
    return gpu_of(state, (cuda_context)(uintptr_t)(device + 1));
}

/* The state file's domain has eight digits, CUDA's four. */
EXPORTED cuda_result cuDeviceGetPCIBusId(char *text, int size, int device)
{
    struct gpu_state state;
    const struct gpu *gpu = gpu_at(&state, device);
    if (!gpu || size <= 0)
        return INVALID_DEVICE;
    size_t length = strlen(gpu->pci), wanted = strlen("0000:61:00.0");
    snprintf(text, (size_t)size, "%s", length > wanted ? gpu->pci + length - wanted : gpu->pci);
    return SUCCESS;
}

EXPORTED cuda_result cuDeviceGetName(char *text, int size, int device)
{
    struct gpu_state state;
    const struct gpu *gpu = gpu_at(&state, device);
    if (!gpu || size <= 0)
        return INVALID_DEVICE;
    snprintf(text, (size_t)size, "%s", gpu->name);
    return SUCCESS;
}

EXPORTED cuda_result cuDeviceGetAttribute(int *value, int attribute, int device)
{
    struct gpu_state state;
    const struct gpu *gpu = gpu_at(&state, device);
    if (!gpu)
        return INVALID_DEVICE;
    *value = attribute == ATTRIBUTE_COMPUTE_MODE ? gpu->cuda.compute_mode : 0;
    return SUCCESS;
}

/* GPUs without NVLinks do not reach each other here, as in most machines of that kind. */
EXPORTED cuda_result cuDeviceCanAccessPeer(int *can, int device, int peer)
{
    struct gpu_state one, other;
    const struct gpu *gpu = gpu_at(&one, device), *second = gpu_at(&other, peer);
    if (!gpu || !second)
        return INVALID_DEVICE;
    *can = gpu->links > 0 && second->links > 0;
    return SUCCESS;
}

EXPORTED cuda_result cuCtxCreate_v2(cuda_context *context, unsigned flags, int device)
{
    struct gpu_state state;
    const struct gpu *gpu = gpu_at(&state, device);
    (void)flags;
    if (!gpu)
        return INVALID_DEVICE;
    if (gpu->hangs || gpu->cuda.hangs)
        hang();
    if (gpu->cuda.compute_mode == PROHIBITED || (gpu->cuda.compute_mode == EXCLUSIVE_PROCESS && gpu->user_count))
        return DEVICE_UNAVAILABLE;
    if (gpu->error)
        return DEVICE_UNAVAILABLE;
    cuda_result result = error_at(gpu, OPENING);
    if (!result)
        *context = current = (cuda_context)(uintptr_t)(device + 1);
    return result;
}

EXPORTED cuda_result cuCtxSetCurrent(cuda_context context)
{
    struct gpu_state state;
    if (!gpu_of(&state, context))
        return INVALID_CONTEXT;
    current = context;
    return SUCCESS;
}

EXPORTED cuda_result cuCtxEnablePeerAccess(cuda_context peer, unsigned flags)
{
    struct gpu_state state;
    return gpu_of(&state, peer) && !flags ? SUCCESS : INVALID_CONTEXT;
}

EXPORTED cuda_result cuCtxDestroy_v2(cuda_context context)
{
    if (current == context)
        current = NULL;
    return SUCCESS;
}
