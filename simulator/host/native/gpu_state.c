/* Reads the state file; see gpu_state.h. */
#include "gpu_state.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void copy(char *target, size_t size, const char *text)
{
    snprintf(target, size, "%s", text);
}

static void add_user(struct gpu *gpu, const char *text)
{
    char *rest = NULL;
    unsigned long pid = strtoul(text, &rest, 10);
    if (gpu->user_count == MAX_USERS)
        return;
    struct gpu_user *user = &gpu->users[gpu->user_count++];
    user->pid = (unsigned)pid;
    copy(user->name, sizeof user->name, *rest == ' ' ? rest + 1 : "");
}

static void add_mig(struct gpu *gpu, const char *profile)
{
    if (gpu->mig_count < MAX_MIG)
        copy(gpu->mig[gpu->mig_count++], sizeof gpu->mig[0], profile);
}

static void add_value(struct gpu *gpu, const char *key, const char *text)
{
    if (gpu->value_count == MAX_VALUES)
        return;
    struct gpu_value *value = &gpu->values[gpu->value_count++];
    copy(value->key, sizeof value->key, key);
    value->value = strtoull(text, NULL, 10);
}

bool gpu_tells(const struct gpu *gpu, const char *key, unsigned long long *value)
{
    for (unsigned i = 0; i < gpu->value_count; i++)
        if (strcmp(gpu->values[i].key, key) == 0) {
            *value = gpu->values[i].value;
            return true;
        }
    return false;
}

static void set_host_value(struct gpu_state *state, const char *key, const char *value)
{
    if (strcmp(key, "driver") == 0)
        copy(state->driver, sizeof state->driver, value);
    else if (strcmp(key, "cuda") == 0)
        state->cuda = atoi(value);
    else if (strcmp(key, "init_error") == 0)
        state->init_error = atoi(value);
    else if (strcmp(key, "hangs") == 0)
        state->hangs = atoi(value) != 0;
    else if (strcmp(key, "missing") == 0)
        copy(state->missing, sizeof state->missing, value);
    else if (strcmp(key, "last_field") == 0)
        state->last_field = (unsigned)atoi(value);
    else if (strcmp(key, "events") == 0)
        copy(state->events, sizeof state->events, value);
    else if (strcmp(key, "control") == 0)
        copy(state->control, sizeof state->control, value);
}

static bool set_cuda_value(struct cuda_trouble *cuda, const char *key, const char *value)
{
    if (strcmp(key, "cuda_error") == 0)
        cuda->error = atoi(value);
    else if (strcmp(key, "cuda_hangs") == 0)
        cuda->hangs = atoi(value) != 0;
    else if (strcmp(key, "cuda_wrong_memory") == 0)
        cuda->wrong_memory = atoi(value) != 0;
    else if (strcmp(key, "cuda_wrong_result") == 0)
        cuda->wrong_result = atoi(value) != 0;
    else if (strcmp(key, "cuda_copy_gbps") == 0)
        cuda->copy_gbps = strtod(value, NULL);
    else if (strcmp(key, "cuda_peers_hang") == 0)
        cuda->peers_hang = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(key, "cuda_peers_wrong") == 0)
        cuda->peers_wrong = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(key, "compute_mode") == 0)
        cuda->compute_mode = atoi(value);
    else
        return false;
    return true;
}

static void set_gpu_value(struct gpu *gpu, const char *key, const char *value)
{
    if (set_cuda_value(&gpu->cuda, key, value))
        return;
    if (strcmp(key, "minor") == 0)
        gpu->minor = (unsigned)atoi(value);
    else if (strcmp(key, "uuid") == 0)
        copy(gpu->uuid, sizeof gpu->uuid, value);
    else if (strcmp(key, "pci") == 0)
        copy(gpu->pci, sizeof gpu->pci, value);
    else if (strcmp(key, "name") == 0)
        copy(gpu->name, sizeof gpu->name, value);
    else if (strcmp(key, "serial") == 0)
        copy(gpu->serial, sizeof gpu->serial, value);
    else if (strcmp(key, "memory_bytes") == 0)
        gpu->memory_bytes = strtoull(value, NULL, 10);
    else if (strcmp(key, "uncorrected_errors") == 0)
        gpu->uncorrected_errors = strtoull(value, NULL, 10);
    else if (strcmp(key, "links") == 0)
        gpu->links = (unsigned)atoi(value);
    else if (strcmp(key, "links_down") == 0)
        gpu->links_down = strtoull(value, NULL, 10);
    else if (strcmp(key, "error") == 0)
        gpu->error = atoi(value);
    else if (strcmp(key, "recovery_action") == 0)
        gpu->recovery_action = atoi(value);
    else if (strcmp(key, "hangs") == 0)
        gpu->hangs = atoi(value) != 0;
    else if (strcmp(key, "remap_pending") == 0)
        gpu->remap_pending = atoi(value) != 0;
    else if (strcmp(key, "remap_failed") == 0)
        gpu->remap_failed = atoi(value) != 0;
    else if (strcmp(key, "cluster_uuid") == 0)
        copy(gpu->cluster_uuid, sizeof gpu->cluster_uuid, value);
    else if (strcmp(key, "mig") == 0)
        add_mig(gpu, value);
    else if (strcmp(key, "user") == 0)
        add_user(gpu, value);
    else
        add_value(gpu, key, value);
}

bool read_gpu_state(struct gpu_state *state)
{
    const char *path = getenv("SICKBAY_SIM_GPU_STATE");
    FILE *file = path ? fopen(path, "re") : NULL;
    char line[LONG_TEXT + TEXT];
    struct gpu *gpu = NULL;

    memset(state, 0, sizeof *state);
    if (!file)
        return false;
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strcmp(line, "[gpu]") == 0) {
            if (state->gpu_count == MAX_GPUS)
                break;
            gpu = &state->gpus[state->gpu_count];
            gpu->index = state->gpu_count++;
            continue;
        }
        char *equals = strchr(line, '=');
        if (!equals)
            continue;
        *equals = '\0';
        if (gpu)
            set_gpu_value(gpu, line, equals + 1);
        else
            set_host_value(state, line, equals + 1);
    }
    fclose(file);
    return true;
}

/* Compares PCI addresses from the end, so that domains of four and of eight digits are the same. */
static bool same_pci(const char *one, const char *other)
{
    size_t left = strlen(one), right = strlen(other), shorter = left < right ? left : right;
    if (shorter < strlen("61:00.0"))
        return false;
    while (shorter-- > 0)
        if (tolower((unsigned char)one[--left]) != tolower((unsigned char)other[--right]))
            return false;
    return true;
}

const struct gpu *find_gpu(const struct gpu_state *state, const char *id)
{
    char *end = NULL;
    unsigned long index = strtoul(id, &end, 10);
    if (*id && *end == '\0')
        return index < state->gpu_count ? &state->gpus[index] : NULL;
    for (unsigned i = 0; i < state->gpu_count; i++)
        if (strcmp(state->gpus[i].uuid, id) == 0 || same_pci(state->gpus[i].pci, id))
            return &state->gpus[i];
    return NULL;
}

void hang(void)
{
    for (;;)
        pause();
}
