/* The GPUs of one simulated host, as its state file tells them.
 *
 * The simulator's Python side (simulator/host/gpu_state.py) writes the file named by SICKBAY_SIM_GPU_STATE whenever
 * anything changes, and replaces it as a whole; the NVML library and nvidia-smi read it anew at every call, so that
 * a fault shows at once. One `key=value` a line; a line `[gpu]` starts the next GPU.
 */
#ifndef SICKBAY_GPU_STATE_H
#define SICKBAY_GPU_STATE_H

#include <stdbool.h>

enum { MAX_GPUS = 16, MAX_USERS = 16, TEXT = 96, LONG_TEXT = 512 };

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
    int fabric_state;
    bool hangs;
    bool remap_pending;
    bool remap_failed;
    struct cuda_trouble cuda;
    unsigned user_count;
    struct gpu_user users[MAX_USERS];
};

struct gpu_state {
    char driver[TEXT];
    int cuda;
    int init_error;           /* NVML return code of initialisation */
    bool hangs;               /* the driver answers nobody */
    char missing[LONG_TEXT];  /* comma-separated functions that this driver's library lacks */
    char control[TEXT];       /* host:port of the machine's own controls */
    unsigned gpu_count;
    struct gpu gpus[MAX_GPUS];
};

/* Reads the file named by SICKBAY_SIM_GPU_STATE; false if there is none, as without a driver. */
bool read_gpu_state(struct gpu_state *state);

/* Finds a GPU by index, UUID or PCI address (any width of domain); NULL if there is none. */
const struct gpu *find_gpu(const struct gpu_state *state, const char *id);

/* Blocks for ever, as a call into a wedged driver does. */
void hang(void);

#endif
