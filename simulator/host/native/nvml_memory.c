/* libnvidia-ml.so.1 of a simulated host: what a GPU tells of errors in its memory. */
#include "nvml.h"

#include <stdio.h>
#include <string.h>

enum { CORRECTED = 0, VOLATILE = 0, DRAM = 2, SRAM = 7, ONE_BIT = 0 };

/* The names under which the state file counts errors, e.g. volatile_uncorrected, aggregate_sram_corrected. */
static void name_count(char *key, size_t size, int type, int counter, const char *memory)
{
    snprintf(key, size, "%s_%s%s", counter == VOLATILE ? "volatile" : "aggregate", memory,
             type == CORRECTED ? "corrected" : "uncorrected");
}

EXPORTED nvml_return nvmlDeviceGetTotalEccErrors(nvml_device device, int type, int counter, unsigned long long *count)
{
    char key[TEXT];
    name_count(key, sizeof key, type, counter, "");
    return give_number(__func__, device, key, count);
}

EXPORTED nvml_return nvmlDeviceGetMemoryErrorCounter(nvml_device device, int type, int counter, int location,
                                                     unsigned long long *count)
{
    char key[TEXT];
    if (location != DRAM && location != SRAM)
        return NOT_SUPPORTED;
    name_count(key, sizeof key, type, counter, location == DRAM ? "dram_" : "sram_");
    return give_number(__func__, device, key, count);
}

EXPORTED nvml_return nvmlDeviceGetEccMode(nvml_device device, unsigned *current, unsigned *pending)
{
    nvml_return result = give_unsigned(__func__, device, "ecc", current);
    return result ? result : give_unsigned(__func__, device, "ecc_pending", pending);
}

EXPORTED nvml_return nvmlDeviceGetSramEccErrorStatus(nvml_device device, struct sram_status *status)
{
    unsigned version = status->version;
    memset(status, 0, sizeof *status);
    status->version = version;
    return give_unsigned(__func__, device, "sram_threshold", &status->threshold_exceeded);
}

EXPORTED nvml_return nvmlDeviceGetRemappedRows(nvml_device device, unsigned *correctable, unsigned *uncorrectable,
                                               unsigned *pending, unsigned *failed)
{
    nvml_return result = give_unsigned(__func__, device, "remapped_rows", uncorrectable);
    if (result)
        return result;
    struct gpu_state state;
    const struct gpu *gpu;
    result = enter_gpu(&state, __func__, device, false, &gpu);
    if (result)
        return result;
    *correctable = 0;
    *pending = gpu->remap_pending;
    *failed = gpu->remap_failed;
    return SUCCESS;
}

EXPORTED nvml_return nvmlDeviceGetRowRemapperHistogram(nvml_device device, struct row_histogram *banks)
{
    memset(banks, 0, sizeof *banks);
    nvml_return result = give_unsigned(__func__, device, "banks", &banks->max);
    if (!result)
        result = give_unsigned(__func__, device, "banks_spent", &banks->none);
    banks->max -= banks->none;
    return result;
}

EXPORTED nvml_return nvmlDeviceGetRetiredPages(nvml_device device, int cause, unsigned *count,
                                               unsigned long long *addresses)
{
    unsigned pages = 0, room = *count;
    const char *key = cause == ONE_BIT ? "retired_single" : "retired_double";
    nvml_return result = give_unsigned(__func__, device, key, &pages);
    if (result)
        return result;
    *count = pages;
    if (room < pages || !addresses)
        return pages ? INSUFFICIENT_SIZE : SUCCESS;
    for (unsigned i = 0; i < pages; i++)
        addresses[i] = 0x1000ull * (i + 1);
    return SUCCESS;
}

EXPORTED nvml_return nvmlDeviceGetRetiredPagesPendingStatus(nvml_device device, unsigned *pending)
{
    return give_unsigned(__func__, device, "retired_pending", pending);
}
