/* What the two halves of the simulated libcuda share. Types and numbers after CUDA's documented driver interface.
 *
 * Its "GPUs" are those of CUDA_VISIBLE_DEVICES that the state file has, its device memory is memory of the process, and
 * it runs one program: the one of the active check, which it knows by the name of its function.
 */
#ifndef SICKBAY_CUDA_H
#define SICKBAY_CUDA_H

#include "gpu_state.h"

#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

typedef int cuda_result;
typedef uint64_t cuda_address;

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEVICE_UNAVAILABLE = 46,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    FIRST_KERNEL_ERROR = 700,
    LAST_KERNEL_ERROR = 721,
    FIRST_SYSTEM_ERROR = 800,
    LAST_SYSTEM_ERROR = 812,
    FABRIC_NOT_READY = 919,
    UNKNOWN_ERROR = 999,
    ECC_UNCORRECTABLE = 214,
    NVLINK_UNCORRECTABLE = 220,
    CONTAINED = 226,
};

enum step { INITIALISING, OPENING, ALLOCATING, READING, WAITING };

/* A context is the ordinal of its GPU among the visible ones, plus one, as a pointer. */
typedef void *cuda_context;

/* The GPU of a context as it stands now; NULL if there is no such context. */
const struct gpu *gpu_of(struct gpu_state *state, cuda_context context);

/* The context that calls are about. */
cuda_context current_context(void);

/* The error that a sick GPU gives at a step, or success. */
cuda_result error_at(const struct gpu *gpu, enum step step);

#endif
