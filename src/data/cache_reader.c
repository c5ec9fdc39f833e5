/* cache_reader.c - blocks of rows, one after the other, and rows back into
 * batches. */
#include "data/cache_reader.h"

#include <string.h>

#include "base/memory.h"
#include "data/cache_build.h"
#include "data/cache_file.h"
#include "data/format/formats.h"

typedef struct cache_reader {
    fl_reader reader; /* first, so that it is this */
    fl_reader_env env;
    fl_reader *text;     /* in place of all below; NULL: the caches are read */
    fl_cache_file *file; /* by file */
    int at;              /* which file */
    size_t next;         /* its next block */

    fl_block *block; /* NULL: none yet */
    uint64_t row, rows;
    double done, all; /* rows */

    fl_block *out; /* of rows by themselves */
    size_t filled;
} cache_reader;

static const fl_stream_spec *spec_of(const cache_reader *r)
{
    return r->env.parser->spec;
}

/* --- caches that fit ------------------------------------------------------ */

static fleet_status open_cache(cache_reader *r, int i, uint64_t key)
{
    const fl_stream_spec *spec = spec_of(r);
    fleet_status status;

    if (spec->any_file && strcmp(spec->files[i], "-") == 0)
        return fl_fail(FLEET_EUNSUPPORTED, "standard input has no cache");
    status = fl_cache_file_open(&r->file[i], spec->files[i], key, r->env.stop);
    if (status != FLEET_ENOENT)
        return status;
    FL_INFO(spec->log, "making the cache of %s", spec->files[i]);
    FL_TRY(fl_cache_build(spec, spec->files[i], key, r->env.stop));
    status = fl_cache_file_open(&r->file[i], spec->files[i], key, r->env.stop);
    return status == FLEET_ENOENT
               ? fl_fail(FLEET_ESTATE, "%.500s has changed meanwhile",
                         spec->files[i])
               : status;
}

static void close_caches(cache_reader *r)
{
    for (int i = 0; i < spec_of(r)->n_file; i++)
        fl_cache_file_close(&r->file[i]);
}

/* Caches only save time: whatever is wrong with them is no error of the pass,
 * and what is wrong with a file is said in its turn. */
static fleet_status read_text(cache_reader *r, int file)
{
    const fl_stream_spec *spec = spec_of(r);

    if (atomic_load(r->env.stop))
        return fl_fail(FLEET_ESTATE, "the stream was closed");
    FL_WARN(spec->log, "%.500s has no cache, and is read as text: %.700s",
            spec->files[file], fleet_last_error());
    fl_error_clear();
    spec->cache->is_off = true;
    close_caches(r); /* they may have taken all descriptors */
    FL_TRY(fl_format_open(spec->format, &r->text, &r->env));
    return r->text->start(r->text);
}

static fleet_status cache_start(fl_reader *reader)
{
    cache_reader *r = (cache_reader *)reader;
    const fl_stream_spec *spec = spec_of(r);
    const uint64_t key = fl_cache_key(spec);

    for (int i = 0; i < spec->n_file; i++) {
        const fleet_status status = open_cache(r, i, key);

        if (status == FLEET_ENOMEM)
            return status;
        if (status != FLEET_OK)
            return read_text(r, i);
        r->file[i].is_whole = fl_cache_file_is_noted(&r->file[i], spec->cache);
        r->all += (double)r->file[i].rows;
    }
    *r->env.parser->cached = true;
    return FLEET_OK;
}

/* --- rows ----------------------------------------------------------------- */

static const fl_cache_block *block_of(const cache_reader *r)
{
    return (const fl_cache_block *)(const void *)r->block->data;
}

static fleet_status next_block(cache_reader *r)
{
    const fl_cache_file *c;

    if (atomic_load_explicit(r->env.stop, memory_order_relaxed))
        return fl_fail(FLEET_ESTATE, "the stream was closed");
    while (r->at < spec_of(r)->n_file && r->next == r->file[r->at].n_block) {
        FL_TRY(fl_cache_file_note(&r->file[r->at], spec_of(r)->cache));
        r->at++;
        r->next = 0;
    }
    if (r->at == spec_of(r)->n_file)
        return FLEET_EEND;
    c = &r->file[r->at];
    fl_block_drop(r->env.blocks, r->block);
    r->block = NULL;
    FL_TRY(
        fl_block_get(r->env.blocks, (size_t)c->index[r->next].size, &r->block));
    FL_TRY(
        fl_cache_file_read(c, r->next, r->block->data, &r->env.parser->layout));
    r->row = 0;
    r->rows = c->index[r->next++].rows;
    return FLEET_OK;
}

/* A row by itself, in a block of such rows. */
static fleet_status copy_row(cache_reader *r, fl_line *line)
{
    const fl_layout *l = &r->env.parser->layout;
    uint32_t size;

    FL_TRY(fl_cache_row_size(block_of(r), r->row, l, &size));
    if (!r->out || r->out->capacity - r->filled < size) {
        fl_block_drop(r->env.blocks, r->out);
        r->out = NULL;
        r->filled = 0;
        FL_TRY(fl_block_get(r->env.blocks, size, &r->out));
    }
    fl_cache_row_make(block_of(r), r->row, l, r->out->data + r->filled);
    line->text = r->out->data + r->filled;
    line->size = size;
    r->filled += size;
    return FLEET_OK;
}

static fl_line line_of(const cache_reader *r, uint64_t row)
{
    return (fl_line){.text = r->block->data,
                     .size = (uint32_t)row,
                     .file = r->at,
                     .number = fl_cache_block_number(block_of(r), row)};
}

/* The next n rows of the block. */
static fleet_status add_rows(cache_reader *r, fl_lines *lines, uint64_t n)
{
    fl_line *line, one;

    if (spec_of(r)->shuffle == 0) {
        FL_TRY(fl_lines_add_room(lines, r->env.blocks, r->block, (size_t)n,
                                 &line));
        for (uint64_t i = 0; i < n; i++)
            line[i] = line_of(r, r->row + i);
        r->row += n;
        return FLEET_OK;
    }
    for (; n > 0; n--, r->row++) {
        one = line_of(r, r->row);
        FL_TRY(copy_row(r, &one));
        FL_TRY(fl_lines_add(lines, r->env.blocks, r->out, &one));
    }
    return FLEET_OK;
}

static fleet_status cache_read(fl_reader *reader, fl_lines *lines, int64_t n,
                               int64_t *got)
{
    cache_reader *r = (cache_reader *)reader;
    fleet_status status = FLEET_OK;

    if (r->text) {
        status = r->text->read(r->text, lines, n, got);
        reader->share = r->text->share;
        return status;
    }
    for (*got = 0; *got < n;) {
        uint64_t some = (uint64_t)(n - *got);

        while (r->row == r->rows)
            FL_TRY(next_block(r));
        some = r->rows - r->row < some ? r->rows - r->row : some;
        if (lines)
            FL_TRY(add_rows(r, lines, some));
        else
            r->row += some;
        *got += (int64_t)some;
        r->done += (double)some;
    }
    reader->share = r->all > 0 ? r->done / r->all : 1;
    return FLEET_OK;
}

static void cache_close(fl_reader *reader)
{
    cache_reader *r = (cache_reader *)reader;

    close_caches(r);
    fl_block_drop(r->env.blocks, r->block);
    fl_block_drop(r->env.blocks, r->out);
    if (r->text)
        r->text->close(r->text);
    fl_free(r->file);
    fl_free(r);
}

fleet_status fl_cache_reader_open(fl_reader **reader, const fl_reader_env *env)
{
    const int n = env->parser->spec->n_file;
    cache_reader *r;

    FL_TRY(FL_NEW(&r, sizeof *r));
    r->reader = (fl_reader){cache_start, cache_read, cache_close, 0};
    r->env = *env;
    r->file = fl_alloc_array((size_t)n, sizeof *r->file);
    if (!r->file) {
        fl_free(r);
        return FLEET_ENOMEM;
    }
    for (int i = 0; i < n; i++)
        r->file[i].fd = -1;
    *reader = &r->reader;
    return FLEET_OK;
}

/* --- back into batches ---------------------------------------------------- */

static fleet_status copy_blocks(const fl_parser *p, fl_scratch *scratch,
                                fl_batch_buffer *buffer)
{
    const fl_lines *lines = &buffer->lines;

    for (size_t i = 0, n; i < lines->n; i += n) {
        const fl_line *line = &lines->line[i];

        n = fl_lines_together(lines, i);
        FL_TRY(fl_cache_block_copy(
            (const fl_cache_block *)(const void *)line->text, line->size,
            line->size + n, &p->layout, buffer, scratch->used, i));
    }
    return FLEET_OK;
}

fleet_status fl_cache_parse(const fl_parser *p, fl_scratch *scratch,
                            fl_batch_buffer *buffer)
{
    const fl_lines *lines = &buffer->lines;

    if (!*p->cached)
        return fl_format_parse(p->spec->format)(p, scratch, buffer);
    FL_TRY(fl_batch_buffer_begin(buffer, &p->layout, (int64_t)lines->n));
    memset(scratch->used, 0, (size_t)p->layout.n_field * sizeof *scratch->used);
    if (p->spec->shuffle == 0)
        return copy_blocks(p, scratch, buffer);
    for (size_t i = 0; i < lines->n; i++)
        FL_TRY(fl_cache_row_copy(lines->line[i].text, &p->layout, buffer,
                                 scratch->used, i));
    return FLEET_OK;
}
