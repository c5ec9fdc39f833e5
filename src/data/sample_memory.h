/* sample_memory.h - the samples of a share of files in memory, in the blocks of
 * which caches of files are made. */
#pragma once

#include "data/cache_block.h"
#include "data/io/paths.h"

typedef struct fl_memory_block {
    fl_cache_block *packed;
    uint64_t first, rows; /* the number of its first row among all rows */
    uint64_t *from;       /* of each row: fl_memory_from(); behind the block */
} fl_memory_block;

typedef struct fl_sample_memory {
    fl_memory_block *block;
    size_t n_block, capacity;
    uint64_t rows;
    int64_t bytes; /* that all of it takes */
    int64_t bad_lines;
    fl_paths files; /* all files, of which the rows are a share */
    int users;      /* streams that read it */
    uint64_t load;  /* which load of the process it is of, from 1 on */
} fl_sample_memory;

enum { FL_NO_LOAD = 0 };

/* Of which file of all, and of which line, a row is. */
static inline uint64_t fl_memory_from(int file, int64_t line)
{
    return (uint64_t)file << 40 | ((uint64_t)line & (((uint64_t)1 << 40) - 1));
}

static inline int fl_memory_file(uint64_t from)
{
    return (int)(from >> 40);
}

static inline int64_t fl_memory_line(uint64_t from)
{
    return (int64_t)(from & (((uint64_t)1 << 40) - 1));
}

/* How much memory samples may take. */
typedef struct fl_memory_limit {
    int64_t most; /* bytes; 0: as many as the system has left */
    int64_t used; /* of these, by other samples */
} fl_memory_limit;

/* Read what the spec says into m, which is empty; spec's files are all of
 * m->files from first_file on, or some. FLEET_ENOMEM: it is more than the
 * limit, with what there is of it; what the job's status says, asked with each
 * block, ends it, too. m is empty then. */
fleet_status fl_sample_memory_load(fl_sample_memory *m,
                                   const fl_stream_spec *spec, int first_file,
                                   const fl_memory_limit *limit);

/* Room for its rows' from, behind a batch that is packed. */
fleet_status fl_memory_add_from(fl_batch_buffer *buffer, uint64_t **from);

/* Take a batch into memory, packed with its rows' from behind it, which say
 * files from first_file on then. share: of all that is to come. */
fleet_status fl_sample_memory_add(fl_sample_memory *m,
                                  const fl_batch_buffer *buffer, int first_file,
                                  double share, const fl_memory_limit *limit);

/* The block that has a row. */
const fl_memory_block *fl_sample_memory_find(const fl_sample_memory *m,
                                             uint64_t row);
void fl_sample_memory_done(fl_sample_memory *m);
