/* recurrent_config.h - the configuration of the kernels of gru.c and lstm.c,
 * for both their halves. */
#pragma once

#include <stdint.h>

typedef struct fl_recurrent {
    int64_t len, units;
} fl_recurrent;
