/* libnvidia-ml.so.1 of a simulated host: events, which appear as lines of a file: GPU's index, type and data.
 *
 * An event set sees what comes after it was made. Its handle is its own memory.
 */
#include "nvml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MICROSECONDS = 20000 };

struct event_set {
    long place; /* in the file, after what was read */
    unsigned long long types[MAX_GPUS];
};

static FILE *open_events(const struct gpu_state *state)
{
    return *state->events ? fopen(state->events, "re") : NULL;
}

EXPORTED nvml_return nvmlEventSetCreate(struct event_set **set)
{
    struct gpu_state state;
    nvml_return result = enter(&state, __func__);
    if (result)
        return result;
    *set = calloc(1, sizeof **set);
    FILE *file = open_events(&state);
    if (file) {
        fseek(file, 0, SEEK_END);
        (*set)->place = ftell(file);
        fclose(file);
    }
    return SUCCESS;
}

EXPORTED nvml_return nvmlEventSetFree(struct event_set *set)
{
    free(set);
    return SUCCESS;
}

EXPORTED nvml_return nvmlDeviceGetSupportedEventTypes(nvml_device device, unsigned long long *types)
{
    return give_number(__func__, device, "event_types", types);
}

EXPORTED nvml_return nvmlDeviceRegisterEvents(nvml_device device, unsigned long long types, struct event_set *set)
{
    struct gpu_state state;
    const struct gpu *gpu;
    unsigned long long known = 0;
    nvml_return result = enter_gpu(&state, __func__, device, false, &gpu);
    if (result)
        return result;
    if (!gpu_tells(gpu, "event_types", &known) || types & ~known)
        return NOT_SUPPORTED;
    set->types[gpu->index] |= types;
    return SUCCESS;
}

/* Takes the next event of a registered kind; false if none has come. */
static bool take(const struct gpu_state *state, struct event_set *set, struct event_data *event)
{
    char line[TEXT];
    bool found = false;
    FILE *file = open_events(state);
    if (!file)
        return false;
    fseek(file, set->place, SEEK_SET);
    while (!found && fgets(line, sizeof line, file) && strchr(line, '\n')) {
        unsigned index = 0;
        memset(event, 0, sizeof *event);
        set->place = ftell(file);
        found = sscanf(line, "%u %llu %llu", &index, &event->type, &event->data) == 3 && index < MAX_GPUS &&
                set->types[index] & event->type;
        event->device = (nvml_device)(uintptr_t)(index + 1);
        event->gpu_instance = event->compute_instance = UINT32_MAX;
    }
    fclose(file);
    return found;
}

EXPORTED nvml_return nvmlEventSetWait_v2(struct event_set *set, struct event_data *event, unsigned milliseconds)
{
    for (unsigned long waited = 0;; waited += LOOK_MICROSECONDS) {
        struct gpu_state state;
        nvml_return result = enter(&state, __func__);
        if (result)
            return result;
        if (take(&state, set, event))
            return SUCCESS;
        if (waited >= milliseconds * 1000ul)
            return TIMEOUT;
        usleep(LOOK_MICROSECONDS);
    }
}
