/* projector.h - a table's rows as TensorBoard's projector reads them. */
#pragma once

#include <stdint.h>

#include "base/error.h"

typedef struct projection {
    const char *folder; /* is made if it is not there */
    const char *table;  /* NULL: the only one */
    int64_t most;       /* rows: those that were updated most; 0: all */
} projection;

/* Into the folder: vectors.tsv, metadata.tsv, projector_config.pbtxt; and a
 * line that says how many rows there are. They stand in the save's order. */
fleet_status print_projection(const char *path, const projection *p);
