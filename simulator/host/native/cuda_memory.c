/* Memory, copies and the one program of the simulated libcuda; see cuda.h. Device memory is memory of the process, up to
 * a bound, and is not given back before it ends.
 */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 64 };

static const size_t MOST_MEMORY = (size_t)1 << 28; /* of this machine, for all GPUs of one process */
static const uint32_t MULTIPLIER = 1664525, INCREMENT = 1013904223;
static const char FUNCTION[] = "sickbay_advance";

struct block {
    unsigned char *bytes;
    size_t size;
};

static struct block blocks[BLOCKS];
static unsigned block_count;
static size_t used;

/* Whether so many bytes from an address on are ours. */
static bool ours(cuda_address address, size_t size)
{
    for (unsigned i = 0; i < block_count; i++) {
        cuda_address begin = (cuda_address)(uintptr_t)blocks[i].bytes;
        if (address >= begin && address - begin <= blocks[i].size && size <= blocks[i].size - (address - begin))
            return true;
    }
    return false;
}

static unsigned char *bytes_at(cuda_address address)
{
    return (unsigned char *)(uintptr_t)address;
}

/* Takes as long as the copy would at the GPU's rate. */
static void take_time(const struct gpu *gpu, size_t size)
{
    if (gpu->cuda.copy_gbps <= 0)
        return;
    double seconds = (double)size / (gpu->cuda.copy_gbps * 1e9);
    struct timespec pause = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&pause, NULL);
}

EXPORTED cuda_result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    struct gpu_state state;
    const struct gpu *gpu = gpu_of(&state, current_context());
    if (!gpu)
        return INVALID_CONTEXT;
    *total = gpu->memory_bytes;
    *free_bytes = gpu->memory_bytes - (gpu->user_count ? gpu->memory_bytes / 2 : 0) - used;
    return SUCCESS;
}

EXPORTED cuda_result cuMemAlloc_v2(cuda_address *address, size_t size)
{
    struct gpu_state state;
    const struct gpu *gpu = gpu_of(&state, current_context());
    if (!gpu)
        return INVALID_CONTEXT;
    cuda_result result = error_at(gpu, ALLOCATING);
    if (result)
        return result;
    if (block_count == BLOCKS || size > MOST_MEMORY - used)
        return OUT_OF_MEMORY;
    struct block *block = &blocks[block_count];
    block->bytes = malloc(size);
    if (!block->bytes)
        return OUT_OF_MEMORY;
    block->size = size;
    block_count++;
    used += size;
    *address = (cuda_address)(uintptr_t)block->bytes;
    return SUCCESS;
}

EXPORTED cuda_result cuMemFree_v2(cuda_address address)
{
    return ours(address, 1) ? SUCCESS : INVALID_VALUE;
}

EXPORTED cuda_result cuMemHostAlloc(void **memory, size_t size, unsigned flags)
{
    (void)flags;
    *memory = malloc(size);
    return *memory ? SUCCESS : OUT_OF_MEMORY;
}

EXPORTED cuda_result cuMemFreeHost(void *memory)
{
    free(memory);
    return SUCCESS;
}

EXPORTED cuda_result cuMemcpyHtoD_v2(cuda_address target, const void *source, size_t size)
{
    struct gpu_state state;
    const struct gpu *gpu = gpu_of(&state, current_context());
    if (!gpu || !ours(target, size))
        return gpu ? INVALID_VALUE : INVALID_CONTEXT;
    take_time(gpu, size);
    memcpy(bytes_at(target), source, size);
    return SUCCESS;
}

EXPORTED cuda_result cuMemcpyDtoH_v2(void *target, cuda_address source, size_t size)
{
    struct gpu_state state;
    const struct gpu *gpu = gpu_of(&state, current_context());
    if (!gpu || !ours(source, size))
        return gpu ? INVALID_VALUE : INVALID_CONTEXT;
    cuda_result result = error_at(gpu, READING);
    if (result)
        return result;
    take_time(gpu, size);
    memcpy(target, bytes_at(source), size);
    if (gpu->cuda.wrong_memory && size > 0)
        ((unsigned char *)target)[size / 2] ^= 0x10;
    return SUCCESS;
}

EXPORTED cuda_result cuMemcpyDtoD_v2(cuda_address target, cuda_address source, size_t size)
{
    struct gpu_state state;
    const struct gpu *gpu = gpu_of(&state, current_context());
    if (!gpu || !ours(target, size) || !ours(source, size))
        return gpu ? INVALID_VALUE : INVALID_CONTEXT;
    take_time(gpu, size);
    memmove(bytes_at(target), bytes_at(source), size);
    return SUCCESS;
}

EXPORTED cuda_result cuMemcpyPeer(cuda_address target, cuda_context to, cuda_address source, cuda_context from,
                                  size_t size)
{
    struct gpu_state state, other;
    const struct gpu *gpu = gpu_of(&state, from), *peer = gpu_of(&other, to);
    if (!gpu || !peer || !ours(target, size) || !ours(source, size))
        return INVALID_VALUE;
    if ((gpu->cuda.peers_hang >> peer->index & 1) || (peer->cuda.peers_hang >> gpu->index & 1))
        hang();
    take_time(gpu, size);
    memmove(bytes_at(target), bytes_at(source), size);
    if ((gpu->cuda.peers_wrong >> peer->index & 1) && size > 0)
        bytes_at(target)[size / 3] ^= 0x01;
    return SUCCESS;
}

EXPORTED cuda_result cuModuleLoadData(void **module, const void *image)
{
    *module = (void *)(uintptr_t)1;
    return strstr(image, FUNCTION) ? SUCCESS : NOT_FOUND;
}

EXPORTED cuda_result cuModuleGetFunction(void **function, void *module, const char *name)
{
    *function = module;
    return module && strcmp(name, FUNCTION) == 0 ? SUCCESS : NOT_FOUND;
}

/* What the program does to each word, at once for all rounds. */
static void advance(uint32_t *words, uint32_t count, uint32_t rounds)
{
    uint32_t multiplier = 1, increment = 0;
    while (rounds-- > 0) {
        multiplier *= MULTIPLIER;
        increment = increment * MULTIPLIER + INCREMENT;
    }
    for (uint32_t i = 0; i < count; i++)
        words[i] = words[i] * multiplier + increment;
}

EXPORTED cuda_result cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                    unsigned block_y, unsigned block_z, unsigned shared, void *stream, void **parameters,
                                    void **extra)
{
    struct gpu_state state;
    const struct gpu *gpu = gpu_of(&state, current_context());
    if (!gpu || !function || !parameters || extra || shared || stream)
        return INVALID_VALUE;
    if (!grid_x || !block_x || grid_y * grid_z * block_y * block_z != 1)
        return INVALID_VALUE;
    cuda_address address = *(cuda_address *)parameters[0];
    uint32_t count = *(uint32_t *)parameters[1], rounds = *(uint32_t *)parameters[2];
    if (!ours(address, (size_t)count * sizeof(uint32_t)))
        return INVALID_VALUE;
    advance((uint32_t *)bytes_at(address), count, rounds);
    if (gpu->cuda.wrong_result && count > 0)
        bytes_at(address)[(size_t)count * 2] ^= 0x40;
    return SUCCESS;
}

EXPORTED cuda_result cuCtxSynchronize(void)
{
    struct gpu_state state;
    const struct gpu *gpu = gpu_of(&state, current_context());
    return gpu ? error_at(gpu, WAITING) : INVALID_CONTEXT;
}
