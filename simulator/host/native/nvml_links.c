/* libnvidia-ml.so.1 of a simulated host: fields, NVLinks and the fabric manager's word. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

enum { VALUE_UNSIGNED_LONG_LONG = 3, RECOVERY_ACTION = 230 };

struct known_field {
    unsigned number;
    const char *key;
    bool of_link; /* counted on the first link that is up */
};

static const struct known_field FIELDS[] = {
    {82, "memory_temperature", false},   {94, "pcie_replays", false},           {161, "link_replays", true},
    {162, "link_recoveries", true},      {163, "link_crc", true},               {214, "link_failed_recoveries", true},
    {219, "link_effective_errors", true}, {220, "link_effective_ber", true},
};

static unsigned first_link_up(const struct gpu *gpu)
{
    unsigned link = 0;
    while (link < gpu->links && gpu->links_down >> link & 1)
        link++;
    return link;
}

static void fill(const struct gpu_state *state, const struct gpu *gpu, struct field_value *value)
{
    value->result = NOT_SUPPORTED;
    value->type = VALUE_UNSIGNED_LONG_LONG;
    value->value.wide = 0;
    if (value->field > state->last_field) {
        value->result = INVALID_ARGUMENT;
        return;
    }
    if (value->field == RECOVERY_ACTION && gpu->recovery_action >= 0) {
        value->value.wide = (unsigned long long)gpu->recovery_action;
        value->result = SUCCESS;
        return;
    }
    for (unsigned i = 0; i < sizeof FIELDS / sizeof *FIELDS; i++)
        if (FIELDS[i].number == value->field && gpu_tells(gpu, FIELDS[i].key, &value->value.wide)) {
            value->result = gpu->error; /* a GPU that wants a reset tells its wish alone */
            if (FIELDS[i].of_link && value->scope != first_link_up(gpu))
                value->value.wide = 0;
        }
}

EXPORTED nvml_return nvmlDeviceGetFieldValues(nvml_device device, int count, struct field_value *values)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, true, &gpu);
    for (int i = 0; !result && i < count; i++)
        fill(&state, gpu, &values[i]);
    return result;
}

/* With MIG the links are off. */
EXPORTED nvml_return nvmlDeviceGetNvLinkState(nvml_device device, unsigned link, unsigned *active)
{
    struct gpu_state state;
    const struct gpu *gpu;
    unsigned long long mig = 0;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    if (result)
        return result;
    if ((gpu_tells(gpu, "mig_mode", &mig) && mig) || gpu->links == 0)
        return NOT_SUPPORTED;
    if (link >= gpu->links)
        return INVALID_ARGUMENT;
    *active = !(gpu->links_down >> link & 1);
    return SUCCESS;
}

static void give_cluster(const struct gpu *gpu, uint8_t *uuid)
{
    memset(uuid, 0, 16);
    for (unsigned i = 0; i < 16 && gpu->cluster_uuid[2 * i] && gpu->cluster_uuid[2 * i + 1]; i++) {
        unsigned byte = 0;
        sscanf(gpu->cluster_uuid + 2 * i, "%2x", &byte);
        uuid[i] = (uint8_t)byte;
    }
}

static unsigned number(const struct gpu *gpu, const char *key)
{
    unsigned long long value = 0;
    gpu_tells(gpu, key, &value);
    return (unsigned)value;
}

EXPORTED nvml_return nvmlDeviceGetGpuFabricInfo(nvml_device device, struct fabric_info *fabric)
{
    struct gpu_state state;
    const struct gpu *gpu;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    if (result)
        return result;
    give_cluster(gpu, fabric->cluster_uuid);
    fabric->status = (nvml_return)number(gpu, "fabric_status");
    fabric->clique = number(gpu, "fabric_clique");
    fabric->state = (uint8_t)number(gpu, "fabric_state");
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
    give_cluster(gpu, fabric->cluster_uuid);
    fabric->status = (nvml_return)number(gpu, "fabric_status");
    fabric->clique = number(gpu, "fabric_clique");
    fabric->state = (uint8_t)number(gpu, "fabric_state");
    fabric->health_mask = number(gpu, "fabric_mask");
    if (fabric->version >> 24 >= 3)
        fabric->health_summary = (uint8_t)number(gpu, "fabric_summary");
    return SUCCESS;
}
