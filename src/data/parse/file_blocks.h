/* file_blocks.h - the bytes of a list of files, in blocks that lines or records
 * are cut from without being copied. */
#pragma once

#include "data/parse/reader.h"
#include "data/io/inputs.h"

typedef struct fl_file_blocks {
    fl_reader_env env;
    fl_inputs in;
    fl_block *block; /* its bytes [begin, filled) are not handed out yet; */
    size_t begin, filled; /* they belong to the file that is open */
    bool open, at_end;
    int64_t number; /* of the file's line or record that was cut last */
    double total;   /* bytes of all files so far */
} fl_file_blocks;

fleet_status fl_file_blocks_init(fl_file_blocks *b, const fl_reader_env *env);
void fl_file_blocks_done(fl_file_blocks *b);

/* Open the next file; FLEET_EEND after the last. */
fleet_status fl_file_blocks_open(fl_file_blocks *b);
const char *fl_file_blocks_path(const fl_file_blocks *b); /* that is open */

/* More bytes behind what is not handed out, which may move; or `at_end`. what:
 * "line" or "record", for the error of one that is too long. */
fleet_status fl_file_blocks_more(fl_file_blocks *b, const char *what);

static inline const char *fl_file_blocks_at(const fl_file_blocks *b)
{
    return b->block->data + b->begin;
}

/* Of all files, what was handed out: 0 to 1. before: if none was read yet. */
double fl_file_blocks_share(const fl_file_blocks *b, double before);
