/* cache_build.c - a stream over one file, whose batches become blocks. */
#include "data/layout/sampling.h"
#include "data/cache_build.h"

#include "data/cache_file.h"
#include "data/cache_reader.h"
#include "data/stream_internal.h"

enum { MOST_ROWS = 4096 };

fleet_status fl_parse_packed(const fl_parser *p, fl_scratch *scratch,
                             fl_batch_buffer *buffer)
{
    FL_TRY(fl_cache_parse(p, scratch, buffer));
    return fl_cache_block_make(&p->layout, buffer);
}

static fleet_status is_stopped(void *stop)
{
    return atomic_load((const atomic_bool *)stop)
               ? fl_fail(FLEET_ESTATE, "the stream was closed")
               : FLEET_OK;
}

int64_t fl_cache_rows_of(const fl_stream_spec *spec)
{
    int64_t size = 1;

    for (int i = 0; i < spec->n_slot; i++) {
        const int64_t dim = spec->slots[i].dim;

        size += dim > 0 ? 4 * dim : 4;
    }
    return size > FL_PACKED_BYTES               ? 1
           : FL_PACKED_BYTES / size > MOST_ROWS ? MOST_ROWS
                                                : FL_PACKED_BYTES / size;
}

static fleet_status add_blocks(fl_cache_writer *w, const fl_stream_spec *spec)
{
    fl_stream *stream;
    fleet_status status;
    fl_batch *b;

    FL_TRY(fl_stream_open_as(&stream, spec, fl_parse_packed));
    while ((status = fl_stream_next(stream, &b)) == FLEET_OK) {
        const fl_batch_buffer *buffer = (const fl_batch_buffer *)b;

        status = fl_cache_writer_add(w, buffer->packed, buffer->packed_size,
                                     (uint64_t)b->rows);
        if (status == FLEET_OK)
            status = spec->job_status(spec->job);
        fl_stream_release(stream, b);
        if (status != FLEET_OK)
            break;
    }
    fl_stream_close(stream);
    return status == FLEET_EEND ? FLEET_OK : status;
}

fleet_status fl_cache_build(const fl_stream_spec *spec, const char *file,
                            uint64_t key, const atomic_bool *stop)
{
    fl_stream_spec one = *spec;
    fl_cache_writer *w;
    fleet_status status;

    one.n_slot = fl_count_read_slots(spec->slots, spec->n_slot);
    one.files = &file;
    one.n_file = 1;
    one.batch_size = fl_cache_rows_of(spec);
    one.batch_bytes = FL_PACKED_BYTES; /* of long lines, too, fewer */
    one.shuffle = one.max_bad_lines = one.share_index = one.first_batch = 0;
    one.share_count = 1;
    one.joined = 0;        /* batches are blocks */
    one.next_lease = NULL; /* the file is read whole */
    one.bounds = NULL;
    fl_sampling_none(&one);
    one.cache = NULL;
    one.any_file = false;
    one.job_status = is_stopped;
    one.job = (void *)(uintptr_t)stop;
    FL_TRY(fl_cache_writer_open(&w, file, key, stop));
    status = add_blocks(w, &one);
    if (status == FLEET_OK)
        status = fl_cache_writer_commit(w);
    fl_cache_writer_close(w);
    return status;
}
