/* The GPUs of one simulated host, as its state file tells them.
 *
 * The simulator's Python side (simulator/host/gpu_state.py) writes the file named by SICKBAY_SIM_GPU_STATE whenever
 * anything changes, and replaces it as a whole; the NVML library and nvidia-smi read it anew at every call, so that
 * a fault shows at once. One `key=value` a line; a line `[gpu]` starts the next GPU.
 */
#ifndef SICKBAY_GPU_STATE_H
#define SICKBAY_GPU_STATE_H

#include <stdbool.h>

enum { MAX_GPUS = 16, MAX_USERS = 16, MAX_MIG = 8, MAX_VALUES = 64, TEXT = 96, LONG_TEXT = 4096 };

struct gpu_user {
    unsigned pid;
    char name[TEXT];
};

/* How a GPU fails at work, whatever NVML says of it; see simulator/host/cuda_trouble.py. */
struct cuda_trouble {
    int error;
    int compute_mode;
    bool hangs;
    bool wrong_memory;
    bool wrong_result;
    double copy_gbps;     /* 0 is as fast as this machine */
    unsigned peers_hang;  /* one bit a GPU */
    unsigned peers_wrong;
};

/* A number that a product may or may not tell: what is not in the file is not supported. */
struct gpu_value {
    char key[TEXT / 2];
    unsigned long long value;
};

struct gpu {
    unsigned index;
    unsigned minor;
    char uuid[TEXT];
    char pci[TEXT]; /* 00000000:61:00.0 */
    char name[TEXT];
    char serial[TEXT];
    unsigned long long memory_bytes;
    unsigned long long uncorrected_errors;
    unsigned long long links_down; /* one bit a link */
    unsigned links;
    int error;           /* NVML return code of every call that needs the hardware; 0 is fine */
    int recovery_action; /* field 230; -1 on a driver that does not tell */
    bool hangs;
    bool remap_pending;
    bool remap_failed;
    struct cuda_trouble cuda;
    char cluster_uuid[TEXT]; /* 32 hexadecimal characters */
    unsigned mig_count;
    char mig[MAX_MIG][TEXT / 4]; /* profiles, e.g. 1g.10gb */
    unsigned value_count;
    struct gpu_value values[MAX_VALUES];
    unsigned user_count;
    struct gpu_user users[MAX_USERS];
};

struct gpu_state {
    char driver[TEXT];
    int cuda;
    int init_error;           /* NVML return code of initialisation */
    bool hangs;               /* the driver answers nobody */
    char missing[LONG_TEXT];  /* comma-separated functions that this driver's library lacks */
    unsigned last_field;      /* the highest number of a field that this driver knows */
    char events[TEXT * 4];    /* path of the file in which events appear */
    char control[TEXT];       /* host:port of the machine's own controls */
    unsigned gpu_count;
    struct gpu gpus[MAX_GPUS];
};

/* Reads the file named by SICKBAY_SIM_GPU_STATE; false if there is none, as without a driver. */
bool read_gpu_state(struct gpu_state *state);

/* Finds a GPU by index, UUID or PCI address (any width of domain); NULL if there is none. */
const struct gpu *find_gpu(const struct gpu_state *state, const char *id);

/* Finds what a GPU tells by this name; false if it does not. */
bool gpu_tells(const struct gpu *gpu, const char *key, unsigned long long *value);

/* Blocks for ever, as a call into a wedged driver does. */
void hang(void);

#endif
