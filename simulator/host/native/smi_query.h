/* What nvidia-smi prints of a GPU: rows of a query, and the long report. */
#ifndef SICKBAY_SMI_QUERY_H
#define SICKBAY_SMI_QUERY_H

#include "gpu_state.h"

/* Each prints the header line, if `format` wants one; false, with a message, if a field is unknown. */
bool check_gpu_fields(const char *fields, const char *format);
bool check_app_fields(const char *fields, const char *format);

void print_gpu_row(const struct gpu_state *state, const struct gpu *gpu, const char *fields, const char *format);
void print_app_rows(const struct gpu *gpu, const char *fields, const char *format);
void print_report_head(const struct gpu_state *state);
void print_report(const struct gpu *gpu);

#endif
