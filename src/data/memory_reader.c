/* memory_reader.c - rows of memory in an order, and back into batches. */
#include "data/memory_reader.h"

#include <string.h>

#include "base/memory.h"

typedef struct memory_reader {
    fl_reader reader; /* first, so that it is this */
    fl_reader_env env;
    uint64_t next; /* place in the order */
} memory_reader;

static const fl_memory_view *view_of(const fl_parser *p)
{
    return p->spec->memory;
}

static fleet_status memory_start(fl_reader *reader)
{
    (void)reader;
    return FLEET_OK;
}

/* Of a file that this process does not know, which can be of a worker with
 * other files, the first one is said. */
static fl_line line_of(const fl_parser *p, uint64_t place)
{
    const fl_memory_view *v = view_of(p);
    const uint64_t row =
        v->shuffled ? fl_permutation_at(&v->order, place) : place;
    const fl_memory_block *b = fl_sample_memory_find(v->memory, row);
    const uint64_t from = b->from[row - b->first];
    const int file = fl_memory_file(from);

    return (fl_line){.text = (const char *)b,
                     .size = (uint32_t)(row - b->first),
                     .file = file < p->spec->n_file ? file : 0,
                     .number = fl_memory_line(from)};
}

static fleet_status memory_read(fl_reader *reader, fl_lines *lines, int64_t n,
                                int64_t *got)
{
    memory_reader *r = (memory_reader *)reader;
    const uint64_t rows = view_of(r->env.parser)->memory->rows;
    const uint64_t left = rows - r->next;
    fl_line *line;

    if (atomic_load_explicit(r->env.stop, memory_order_relaxed))
        return fl_fail(FLEET_ESTATE, "the stream was closed");
    *got = left < (uint64_t)n ? (int64_t)left : n;
    if (lines) {
        FL_TRY(
            fl_lines_add_room(lines, r->env.blocks, NULL, (size_t)*got, &line));
        for (int64_t i = 0; i < *got; i++)
            line[i] = line_of(r->env.parser, r->next + (uint64_t)i);
    }
    r->next += (uint64_t)*got;
    reader->share = rows > 0 ? (double)r->next / (double)rows : 1;
    return *got < n ? FLEET_EEND : FLEET_OK;
}

static void memory_close(fl_reader *reader)
{
    memory_reader *r = (memory_reader *)reader;

    view_of(r->env.parser)->memory->users--;
    fl_free(r);
}

fleet_status fl_memory_reader_open(fl_reader **reader, const fl_reader_env *env)
{
    memory_reader *r;

    FL_TRY(FL_NEW(&r, sizeof *r));
    r->reader = (fl_reader){memory_start, memory_read, memory_close, 0};
    r->env = *env;
    view_of(env->parser)->memory->users++;
    *reader = &r->reader;
    return FLEET_OK;
}

/* --- back into batches ---------------------------------------------------- */

static const fl_memory_block *block_of(const fl_line *line)
{
    return (const fl_memory_block *)(const void *)line->text;
}

/* Of n lines from i on a slot that has the values of other rows. */
static fleet_status copy_moved(const fl_parser *p, int field, size_t i,
                               size_t n, fl_batch_buffer *buffer, size_t *used)
{
    const fl_memory_view *v = view_of(p);

    for (size_t k = i; k < i + n; k++) {
        const fl_line *line = &buffer->lines.line[k];
        const uint64_t row =
            fl_permutation_at(&v->other, block_of(line)->first + line->size);
        const fl_memory_block *b = fl_sample_memory_find(v->memory, row);

        FL_TRY(fl_cache_field_copy(b->packed, field, row - b->first,
                                   row - b->first + 1, &p->layout, buffer, used,
                                   k));
    }
    return FLEET_OK;
}

static fleet_status copy_rows(const fl_parser *p, size_t i, size_t n,
                              fl_batch_buffer *buffer, size_t *used)
{
    const fl_line *line = &buffer->lines.line[i];
    const bool *moved = view_of(p)->moved;

    if (!moved)
        return fl_cache_block_copy(block_of(line)->packed, line->size,
                                   line->size + n, &p->layout, buffer, used, i);
    for (int field = 0; field < p->layout.n_field; field++)
        FL_TRY(moved[field] ? copy_moved(p, field, i, n, buffer, used)
                            : fl_cache_field_copy(block_of(line)->packed, field,
                                                  line->size, line->size + n,
                                                  &p->layout, buffer, used, i));
    return FLEET_OK;
}

fleet_status fl_memory_parse(const fl_parser *p, fl_scratch *scratch,
                             fl_batch_buffer *buffer)
{
    const fl_lines *lines = &buffer->lines;

    FL_TRY(fl_batch_buffer_begin(buffer, &p->layout, (int64_t)lines->n));
    memset(scratch->used, 0, (size_t)p->layout.n_field * sizeof *scratch->used);
    for (size_t i = 0, n; i < lines->n; i += n) {
        n = fl_lines_together(lines, i);
        FL_TRY(copy_rows(p, i, n, buffer, scratch->used));
    }
    return FLEET_OK;
}
