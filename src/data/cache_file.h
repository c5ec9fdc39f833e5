/* cache_file.h - FILE.fleetcache: what a file's lines were parsed to, beside
 * it, with what it was made of.
 *
 * It is read only where that is the same: the options that lines are parsed by,
 * and the file. A file is the same if its size, times and inode are, which the
 * system changes with each write; or, where these differ or the file had been
 * written just before, if its bytes have the same hash.
 */
#pragma once

#include <stdatomic.h>

#include "data/cache_block.h"

/* All that says how a line becomes values, as one number. */
uint64_t fl_cache_key(const fl_stream_spec *spec);

typedef struct fl_cache_index {
    uint64_t at, size; /* of a block in the file */
    uint64_t rows, hash;
} fl_cache_index;

typedef struct fl_cache_file {
    char *path;
    int fd;
    uint64_t rows;
    uint64_t identity; /* the file's, which a write to it changes */
    bool is_whole;     /* its checksums were right in a pass before this one */
    fl_cache_index *index;
    size_t n_block;
} fl_cache_file;

/* The cache of the file, open. FLEET_ENOENT, which leaves no text: there is
 * none that fits, or *stop was set meanwhile: large files are hashed. */
fleet_status fl_cache_file_open(fl_cache_file *c, const char *source,
                                uint64_t key, const atomic_bool *stop);

/* A block of it into memory for index[i].size bytes. FLEET_ECORRUPT: it is
 * damaged, and is removed. */
fleet_status fl_cache_file_read(const fl_cache_file *c, size_t i, void *to,
                                const fl_layout *l);
void fl_cache_file_close(fl_cache_file *c);

/* Its blocks were all read: the next pass of this process need not add them up
 * again. */
fleet_status fl_cache_file_note(const fl_cache_file *c, fl_cache_state *state);
bool fl_cache_file_is_noted(const fl_cache_file *c,
                            const fl_cache_state *state);

typedef struct fl_cache_writer fl_cache_writer;

/* A new one, which takes its place at commit, unless the source has changed
 * since open: FLEET_ESTATE. close() without it leaves nothing. */
fleet_status fl_cache_writer_open(fl_cache_writer **w, const char *source,
                                  uint64_t key, const atomic_bool *stop);
fleet_status fl_cache_writer_add(fl_cache_writer *w, const void *block,
                                 size_t size, uint64_t rows);
fleet_status fl_cache_writer_commit(fl_cache_writer *w);
void fl_cache_writer_close(fl_cache_writer *w); /* NULL is fine */
