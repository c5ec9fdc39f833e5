/* shuffle.c - a shuffle buffer.
 *
 * It is filled; then each sample that comes takes the place of one picked at
 * random, which goes out; in the end the rest goes out in random order. The
 * k-th pick is a function of (seed, k).
 */
#include "data/shuffle.h"

#include <string.h>

#include "base/memory.h"
#include "base/rng.h"

enum {
    PICK_STREAM = 0x5fe7, /* of the random numbers: any number of its own */
    PIECE = 64            /* lines that are read at once */
};

typedef struct kept_line {
    char *text; /* its own copy */
    size_t capacity;
    fl_line line;
} kept_line;

typedef struct shuffle_reader {
    fl_reader reader; /* first, so that it is this */
    fl_reader_env env;
    fl_reader *inner;

    kept_line *buffer;
    size_t n, capacity;
    uint64_t picks;
    bool at_end;

    fl_lines piece; /* read, but not yet in the buffer */
    size_t used;
    fl_error error; /* comes after the piece */
    fl_block *out;  /* where lines that go out are copied to */
    size_t filled;
} shuffle_reader;

static fleet_status shuffle_start(fl_reader *reader)
{
    shuffle_reader *r = (shuffle_reader *)reader;

    return r->inner->start(r->inner);
}

static void read_piece(shuffle_reader *r)
{
    fleet_status status;
    int64_t got;

    fl_lines_clear(&r->piece, r->env.blocks);
    r->used = 0;
    status = r->inner->read(r->inner, &r->piece, PIECE, &got);
    r->at_end = status != FLEET_OK;
    if (status != FLEET_OK && status != FLEET_EEND)
        fl_error_take(&r->error, status);
}

/* The next line of the inner reader; NULL when there is none. */
static fleet_status next_line(shuffle_reader *r, const fl_line **line)
{
    if (r->used == r->piece.n && !r->at_end)
        read_piece(r);
    if (r->used == r->piece.n && r->error.code != FLEET_OK)
        return fl_error_raise(&r->error);
    *line = r->used < r->piece.n ? &r->piece.line[r->used++] : NULL;
    return FLEET_OK;
}

static fleet_status keep_line(shuffle_reader *r, size_t i, const fl_line *line)
{
    kept_line *k = &r->buffer[i];

    FL_TRY(fl_grow(&k->text, &k->capacity, line->size + 1, 1));
    memcpy(k->text, line->text, line->size);
    k->line = *line;
    return FLEET_OK;
}

static fleet_status fill_buffer(shuffle_reader *r)
{
    const size_t size = (size_t)r->env.parser->spec->shuffle;

    while (r->n < size) {
        const fl_line *line;

        FL_TRY(next_line(r, &line));
        if (!line)
            return FLEET_OK;
        FL_TRY(fl_grow(&r->buffer, &r->capacity, r->n + 1, sizeof *r->buffer));
        FL_TRY(keep_line(r, r->n, line));
        r->n++;
    }
    return FLEET_OK;
}

/* Copy a line out, to where it stays until its batch is parsed. */
static fleet_status emit_line(shuffle_reader *r, const kept_line *k,
                              fl_lines *lines)
{
    const size_t size = k->line.size;
    fl_line line = k->line;
    char *to;

    if (!r->out || r->out->capacity < r->filled + size + 1) {
        fl_block_drop(r->env.blocks, r->out);
        r->out = NULL;
        r->filled = 0;
        FL_TRY(fl_block_get(r->env.blocks, size + 1, &r->out));
    }
    to = r->out->data + r->filled;
    memcpy(to, k->text, size);
    to[size] = '\n';
    r->filled += size + 1;
    line.text = to;
    return fl_lines_add(lines, r->env.blocks, r->out, &line);
}

/* Put what is next, or else the last of the buffer, in the place i. */
static fleet_status refill_place(shuffle_reader *r, size_t i)
{
    const fl_line *line;
    kept_line last;

    FL_TRY(next_line(r, &line));
    if (line)
        return keep_line(r, i, line);
    last = r->buffer[--r->n];
    r->buffer[r->n] = r->buffer[i]; /* its memory stays the buffer's */
    r->buffer[i] = last;
    return FLEET_OK;
}

static fleet_status shuffle_read(fl_reader *reader, fl_lines *lines, int64_t n,
                                 int64_t *got)
{
    shuffle_reader *r = (shuffle_reader *)reader;

    *got = 0;
    r->filled += FL_TEXT_PAD; /* another thread may read on so far */
    if (!r->at_end)
        FL_TRY(fill_buffer(r));
    for (; *got < n && r->n > 0; ++*got) {
        size_t i = (size_t)fl_rng_below(r->env.parser->spec->seed, PICK_STREAM,
                                        r->picks++, r->n);

        if (lines)
            FL_TRY(emit_line(r, &r->buffer[i], lines));
        FL_TRY(refill_place(r, i));
    }
    reader->share =
        r->inner->share * (double)r->picks / ((double)r->picks + (double)r->n);
    return *got < n ? FLEET_EEND : FLEET_OK;
}

static void shuffle_close(fl_reader *reader)
{
    shuffle_reader *r = (shuffle_reader *)reader;

    for (size_t i = 0; i < r->capacity; i++)
        fl_free(r->buffer[i].text);
    fl_free(r->buffer);
    fl_lines_done(&r->piece, r->env.blocks);
    fl_block_drop(r->env.blocks, r->out);
    r->inner->close(r->inner);
    fl_free(r);
}

fleet_status fl_shuffle_reader_open(fl_reader **reader,
                                    const fl_reader_env *env, fl_reader *inner)
{
    shuffle_reader *r = fl_alloc(sizeof *r);

    if (!r) {
        inner->close(inner);
        return FLEET_ENOMEM;
    }
    r->reader = (fl_reader){shuffle_start, shuffle_read, shuffle_close, 0};
    r->env = *env;
    r->inner = inner;
    *reader = &r->reader;
    return FLEET_OK;
}
