/* What the parts of the simulated NVML share: its types, after NVML's documented C interface, and how a call
 * begins.
 *
 * A handle is the GPU's index + 1 in the state file that was read when it was made; a MIG device's has its place + 1 in
 * the byte above.
 */
#ifndef SICKBAY_NVML_H
#define SICKBAY_NVML_H

#include "gpu_state.h"

#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

typedef int nvml_return;
typedef void *nvml_device;

enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    ARGUMENT_VERSION_MISMATCH = 25,
    UNKNOWN_ERROR = 999,
    MIG_PLACE_SHIFT = 8,
};

struct pci_info {
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
};

struct field_value {
    unsigned field, scope;
    int64_t timestamp, latency;
    int type;
    nvml_return result;
    union {
        double real;
        unsigned whole;
        unsigned long long wide;
    } value;
};

struct process_info {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

struct fabric_info {
    uint8_t cluster_uuid[16];
    nvml_return status;
    uint32_t clique;
    uint8_t state;
};

struct fabric_info_versioned {
    unsigned version;
    uint8_t cluster_uuid[16];
    nvml_return status;
    uint32_t clique;
    uint8_t state;
    uint32_t health_mask;
    uint8_t health_summary; /* version 3 only */
};

struct sram_status {
    unsigned version;
    unsigned long long aggregate_parity, aggregate_secded, aggregate_corrected;
    unsigned long long volatile_parity, volatile_secded, volatile_corrected;
    unsigned long long bucket_l2, bucket_sm, bucket_pcie, bucket_mcu, bucket_other;
    unsigned threshold_exceeded;
};

struct row_histogram {
    unsigned max, high, partial, low, none;
};

struct margin {
    unsigned version;
    int degrees;
};

struct event_data {
    nvml_device device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

struct memory_info {
    unsigned long long total, free, used;
};

struct memory_info_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

/* What every call begins with. A function that this driver lacks answers as pynvml does when the symbol is missing. */
nvml_return enter(struct gpu_state *state, const char *function);

/* The same for calls on one GPU; `identity` calls (UUID, address, name) answer though the GPU wants a reset. */
nvml_return enter_gpu(struct gpu_state *state, const char *function, nvml_device handle, bool identity,
                      const struct gpu **gpu);

/* One number that the GPU tells by the name `key`, or not. */
nvml_return give_number(const char *function, nvml_device device, const char *key, unsigned long long *value);
nvml_return give_unsigned(const char *function, nvml_device device, const char *key, unsigned *value);

/* Copies text into the caller's buffer. */
nvml_return give_text(char *target, unsigned size, const char *text);

#endif
