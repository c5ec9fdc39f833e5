/* sample_memory.c - a stream's batches, packed and kept, within a limit. */
#include "data/sample_memory.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/memory_left.h"
#include "data/cache_build.h"
#include "data/layout/check_spec.h"
#include "data/stream_internal.h"

/* What is left to the system and to all else; and how often it is asked: once
 * for that number of bytes. */
static const int64_t RESERVE = 64 << 20, LOOK_EVERY = 8 << 20;

/* --- the limit ------------------------------------------------------------ */

static fleet_status refuse_size(const fl_sample_memory *m, int64_t size,
                                double share, const fl_memory_limit *limit,
                                int64_t left)
{
    const double mb = 1e-6, n = (double)(m->bytes + size);
    char text[120];

    if (limit->most > 0)
        snprintf(text, sizeof text, "memory_limit is %.1f MB%s",
                 (double)limit->most * mb,
                 limit->used > 0 ? ", of which other samples have some" : "");
    else
        snprintf(text, sizeof text, "the system has %.1f MB left",
                 (double)left * mb);
    return fl_fail(FLEET_ENOMEM,
                   "dataset: %" PRIu64 " samples, which %.0f %% of the files "
                   "are, take %.1f MB of memory, all about %.1f MB, and %s: "
                   "expected fewer files, more workers, or a queue dataset",
                   m->rows, 100 * share, n * mb,
                   n * mb / (share > 1e-6 ? share : 1), text);
}

static fleet_status check_room(const fl_sample_memory *m, int64_t size,
                               double share, const fl_memory_limit *limit)
{
    int64_t left;

    if (limit->most > 0)
        return m->bytes + size <= limit->most - limit->used
                   ? FLEET_OK
                   : refuse_size(m, size, share, limit, 0);
    if (m->bytes / LOOK_EVERY == (m->bytes + size) / LOOK_EVERY)
        return FLEET_OK;
    left = fl_memory_left();
    return left > RESERVE + LOOK_EVERY + size
               ? FLEET_OK
               : refuse_size(m, size, share, limit, left);
}

/* --- blocks --------------------------------------------------------------- */

static fleet_status make_block(fl_memory_block *to,
                               const fl_batch_buffer *buffer, int first_file)
{
    const size_t rows = (size_t)to->rows;
    const uint64_t first = fl_memory_from(first_file, 0);

    FL_TRY(FL_NEW(&to->packed, buffer->packed_size));
    memcpy(to->packed, buffer->packed, buffer->packed_size);
    to->from =
        (uint64_t *)(void *)((char *)to->packed + buffer->packed_size) - rows;
    for (size_t i = 0; i < rows; i++)
        to->from[i] += first;
    return FLEET_OK;
}

fleet_status fl_sample_memory_add(fl_sample_memory *m,
                                  const fl_batch_buffer *buffer, int first_file,
                                  double share, const fl_memory_limit *limit)
{
    fl_memory_block block = {.first = m->rows,
                             .rows = (uint64_t)buffer->batch.rows};
    const int64_t size = (int64_t)(buffer->packed_size + sizeof block);

    if (block.rows == 0)
        return FLEET_OK;
    FL_TRY(check_room(m, size, share, limit));
    FL_TRY(fl_grow(&m->block, &m->capacity, m->n_block + 1, sizeof block));
    FL_TRY(make_block(&block, buffer, first_file));
    m->block[m->n_block++] = block;
    m->rows += block.rows;
    m->bytes += size;
    return FLEET_OK;
}

const fl_memory_block *fl_sample_memory_find(const fl_sample_memory *m,
                                             uint64_t row)
{
    size_t low = 0, high = m->n_block;

    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;

        if (m->block[middle].first <= row)
            low = middle;
        else
            high = middle;
    }
    return &m->block[low];
}

/* --- read ----------------------------------------------------------------- */

fleet_status fl_memory_add_from(fl_batch_buffer *buffer, uint64_t **from)
{
    const size_t size = buffer->packed_size;

    buffer->packed_size += (size_t)buffer->batch.rows * sizeof **from;
    FL_TRY(fl_grow(&buffer->packed, &buffer->packed_capacity,
                   buffer->packed_size, 1));
    *from = (uint64_t *)(void *)(buffer->packed + size);
    return FLEET_OK;
}

/* A block with its rows' from, while their lines are at hand. */
static fleet_status parse_from(const fl_parser *p, fl_scratch *scratch,
                               fl_batch_buffer *buffer)
{
    const fl_lines *lines = &buffer->lines;
    uint64_t *from;

    FL_TRY(fl_parse_packed(p, scratch, buffer));
    FL_TRY(fl_memory_add_from(buffer, &from));
    for (size_t i = 0; i < lines->n; i++)
        from[i] = fl_memory_from(lines->line[i].file, lines->line[i].number);
    return FLEET_OK;
}

/* Batches are as large as blocks; a share of batches is of the spec's, of which
 * a block has several. */
static fl_stream_spec spec_of_blocks(const fl_stream_spec *spec)
{
    const int64_t rows = fl_cache_rows_of(spec);
    fl_stream_spec all = *spec;

    all.n_slot = fl_count_read_slots(spec->slots, spec->n_slot);
    all.first_batch = 0;
    all.bounds = NULL;
    if (all.share_count > 1) {
        all.joined = rows / all.batch_size;
    } else {
        all.batch_size = rows;
        all.batch_bytes = FL_PACKED_BYTES;
    }
    return all;
}

static fleet_status job_status(const fl_stream_spec *spec)
{
    return spec->job_status ? spec->job_status(spec->job) : FLEET_OK;
}

/* The end of the data is that of a job that goes on. */
static fleet_status read_all(fl_sample_memory *m, const fl_stream_spec *spec,
                             fl_stream *stream, int first_file,
                             const fl_memory_limit *limit)
{
    fleet_status status;
    fl_batch *b;

    while ((status = fl_stream_next(stream, &b)) == FLEET_OK) {
        status = fl_sample_memory_add(m, (const fl_batch_buffer *)b, first_file,
                                      b->share, limit);
        fl_stream_release(stream, b);
        if (status == FLEET_OK)
            status = job_status(spec);
        if (status != FLEET_OK)
            return status;
    }
    m->bad_lines = fl_stream_bad_lines(stream);
    return status == FLEET_EEND ? job_status(spec) : status;
}

fleet_status fl_sample_memory_load(fl_sample_memory *m,
                                   const fl_stream_spec *spec, int first_file,
                                   const fl_memory_limit *limit)
{
    static atomic_uint_least64_t loads;
    const fl_stream_spec all = spec_of_blocks(spec);
    fleet_status status;
    fl_stream *stream;

    FL_TRY(fl_spec_check(spec));
    FL_TRY(fl_spec_check_statistics(spec));
    FL_TRY(fl_stream_open_as(&stream, &all, parse_from));
    status = read_all(m, spec, stream, first_file, limit);
    fl_stream_close(stream);
    m->load = 1 + atomic_fetch_add(&loads, 1);
    if (status != FLEET_OK)
        fl_sample_memory_done(m);
    return status;
}

void fl_sample_memory_done(fl_sample_memory *m)
{
    for (size_t i = 0; i < m->n_block; i++)
        fl_free(m->block[i].packed);
    fl_free(m->block);
    fl_paths_done(&m->files);
    *m = (fl_sample_memory){.n_block = 0};
}
