/* reader.h - where a stream's samples come from, one after the other, not yet
 * parsed. A reader is used by one thread at a time. */
#pragma once

#include <stdatomic.h>

#include "data/parse/parser.h"

typedef struct fl_reader fl_reader;

struct fl_reader {
    /* Open the first file, so that its absence is reported at once. */
    fleet_status (*start)(fl_reader *r);

    /* Add the next n samples to lines, or pass over them if that is NULL.
     * FLEET_EEND: the files had only *got. */
    fleet_status (*read)(fl_reader *r, fl_lines *lines, int64_t n,
                         int64_t *got);
    void (*close)(fl_reader *r);
    double share; /* of the input that was read so far: 0 to 1 */
};

/* What the readers of a stream need of it. */
typedef struct fl_reader_env {
    const fl_parser *parser;
    fl_blocks *blocks;
    int wakeup;              /* comes when the stream is closed, */
    const atomic_bool *stop; /* and then this is true */
} fl_reader_env;
