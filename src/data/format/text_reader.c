/* text_reader.c - the lines of a list of text files, each cut from the block
 * that it was read into. */
#include "data/format/text_reader.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "data/format/csv.h"
#include "data/io/inputs.h"

enum { LEAST_READ = 64 << 10 }; /* a block with less room is full */

typedef struct text_reader {
    fl_reader reader; /* first, so that it is this */
    fl_reader_env env;
    fl_inputs in;

    /* data[begin .. filled) of the block is not yet handed out; there is no
     * newline before scanned */
    fl_block *block;
    size_t begin, scanned, filled;
    bool open, at_end; /* of the file */
    int64_t number;    /* of the last line, in the file */
    double total;      /* bytes of all files so far */

    bool csv, wants_header;
    char comment; /* lines that begin with it are none; 0: no line does */
    fl_csv_cells cells;
} text_reader;

static const char *path_of(const text_reader *r)
{
    return r->env.parser->spec->files[r->in.current];
}

static fleet_status open_next(text_reader *r)
{
    r->open = false;
    FL_TRY(fl_inputs_next(&r->in));
    r->open = true;
    fl_log_line(r->env.parser->spec->log, FLEET_LOG_DEBUG, "reading %s",
                path_of(r));
    r->at_end = false;
    r->number = 0;
    r->wants_header = r->csv && r->env.parser->spec->header;
    if (r->csv)
        fl_csv_places(r->env.parser, r->in.current);
    return FLEET_OK;
}

/* The line that has begun goes to another place, with room for more: first in
 * the block, FL_TEXT_PAD behind what other threads may be reading now. */
static void move_line(text_reader *r, fl_block *to, size_t at)
{
    size_t carried = r->filled - r->begin;

    if (carried > 0)
        memmove(to->data + at, r->block->data + r->begin, carried);
    r->scanned = at + carried;
    r->begin = at;
    r->filled = at + carried;
}

static fleet_status change_block(text_reader *r)
{
    size_t carried = r->filled - r->begin;
    fl_block *new;

    if (carried > FL_LINE_LIMIT)
        return fl_fail(FLEET_EFORMAT,
                       "%.500s:%" PRId64 ": a line of more than %d MB",
                       path_of(r), r->number + 1, FL_LINE_LIMIT >> 20);
    FL_TRY(fl_block_get(r->env.blocks, carried + carried / 2 + 2 * LEAST_READ,
                        &new));
    move_line(r, new, 0);
    fl_block_drop(r->env.blocks, r->block);
    r->block = new;
    return FLEET_OK;
}

/* Room behind what is filled. */
static fleet_status make_room(text_reader *r)
{
    size_t at = r->filled + FL_TEXT_PAD;
    size_t end = at + (r->filled - r->begin);

    if (r->begin == 0 && r->block &&
        r->block->capacity - r->filled > LEAST_READ)
        return FLEET_OK; /* no line of this block was handed out */
    if (!r->block || r->block->capacity < end + LEAST_READ)
        return change_block(r);
    move_line(r, r->block, at);
    return FLEET_OK;
}

static fleet_status read_more(text_reader *r)
{
    size_t got;

    if (atomic_load_explicit(r->env.stop, memory_order_relaxed))
        return fl_fail(FLEET_ESTATE, "the stream was closed");
    FL_TRY(make_room(r));
    FL_TRY(fl_inputs_read(&r->in, r->block->data + r->filled,
                          r->block->capacity - r->filled, &got));
    r->filled += got;
    r->total += (double)got;
    r->at_end = got == 0;
    return FLEET_OK;
}

static void take_line(text_reader *r, size_t end, fl_line *line)
{
    /* some programs begin a file with it, to say that it is UTF-8 */
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t n = sizeof mark - 1;
    const char *text = r->block->data + r->begin;
    size_t size = end - r->begin;

    if (r->number == 0 && size >= n && memcmp(text, mark, n) == 0) {
        text += n;
        size -= n;
    }
    if (size > 0 && text[size - 1] == '\r')
        size--;
    *line = (fl_line){.text = text,
                      .size = (uint32_t)size,
                      .file = r->in.current,
                      .number = ++r->number};
}

/* The next line of the file that is open; *any is false at its end. */
static fleet_status next_line(text_reader *r, fl_line *line, bool *any)
{
    const char *newline = NULL;
    size_t end;

    for (;;) {
        if (r->filled > r->scanned)
            newline = memchr(r->block->data + r->scanned, '\n',
                             r->filled - r->scanned);
        if (newline || r->at_end)
            break;
        r->scanned = r->filled;
        FL_TRY(read_more(r));
    }
    *any = newline || r->filled > r->begin;
    if (!*any)
        return FLEET_OK;
    end = newline ? (size_t)(newline - r->block->data) : r->filled;
    take_line(r, end, line);
    r->begin = r->scanned = newline ? end + 1 : end;
    return FLEET_OK;
}

static bool is_nothing(const text_reader *r, const fl_line *line)
{
    uint32_t i = 0;

    if (line->size == 0)
        return true;
    if (r->csv && line->number <= r->env.parser->spec->skip_lines)
        return true;
    if (r->comment && *line->text == r->comment)
        return true;
    while (i < line->size && fl_is_blank(line->text[i]))
        i++;
    return i == line->size;
}

/* The next line that is a sample. */
static fleet_status next_sample(text_reader *r, fl_line *line)
{
    for (;;) {
        bool any = false;

        if (r->open)
            FL_TRY(next_line(r, line, &any));
        if (!any) {
            FL_TRY(open_next(r));
        } else if (is_nothing(r, line)) {
            continue;
        } else if (r->wants_header) {
            FL_TRY(fl_csv_header(r->env.parser, &r->cells, line));
            r->wants_header = false;
        } else {
            return FLEET_OK;
        }
    }
}

static fleet_status text_start(fl_reader *reader)
{
    fleet_status status = open_next((text_reader *)reader);

    return status == FLEET_EEND ? FLEET_OK : status;
}

static fleet_status text_read(fl_reader *reader, fl_lines *lines, int64_t n,
                              int64_t *got)
{
    text_reader *r = (text_reader *)reader;
    const int64_t most = r->env.parser->spec->batch_bytes;
    int64_t bytes = 0;

    for (*got = 0; *got < n && (most == 0 || bytes < most); ++*got) {
        fl_line line;

        FL_TRY(next_sample(r, &line));
        bytes += line.size;
        if (lines)
            FL_TRY(fl_lines_add(lines, r->env.blocks, r->block, &line));
    }
    if (r->total > 0)
        reader->share =
            r->in.share * (1 - (double)(r->filled - r->begin) / r->total);
    return FLEET_OK;
}

static void text_close(fl_reader *reader)
{
    text_reader *r = (text_reader *)reader;

    fl_inputs_done(&r->in);
    fl_block_drop(r->env.blocks, r->block);
    fl_csv_cells_done(&r->cells);
    fl_free(r);
}

fleet_status fl_text_reader_open(fl_reader **reader, const fl_reader_env *env)
{
    const fl_stream_spec *spec = env->parser->spec;
    const fl_source_options source = {.command = fl_command_of(spec),
                                      .timeout_ms = spec->pipe_timeout_ms,
                                      .wakeup = env->wakeup,
                                      .any = spec->any_file,
                                      .text = spec->text,
                                      .text_size = spec->text_size};
    fleet_status status;
    text_reader *r;

    FL_TRY(FL_NEW(&r, sizeof *r));
    r->reader = (fl_reader){text_start, text_read, text_close, 0};
    r->env = *env;
    r->csv = spec->format == FLEET_CSV;
    r->comment = spec->format == FLEET_LIBSVM ? '#' : spec->comment;
    status = fl_inputs_init(&r->in, spec->files, spec->n_file, &source,
                            spec->n_thread);
    if (status != FLEET_OK) {
        fl_free(r);
        return status;
    }
    *reader = &r->reader;
    return FLEET_OK;
}
