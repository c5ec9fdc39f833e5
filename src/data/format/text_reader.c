/* text_reader.c - the lines of a list of text files, each cut from the block
 * that it was read into. */
#include "data/format/text_reader.h"

#include <string.h>

#include "base/memory.h"
#include "data/format/csv.h"
#include "data/parse/file_blocks.h"

typedef struct text_reader {
    fl_reader reader; /* first, so that it is this */
    fl_file_blocks file;
    size_t scanned; /* bytes that are not handed out and have no newline */
    bool csv, wants_header;
    bool libsvm;  /* there may be blanks before a comment */
    char comment; /* lines that begin with it are none; 0: no line does */
    fl_csv_cells cells;
} text_reader;

static const fl_parser *parser_of(const text_reader *r)
{
    return r->file.env.parser;
}

static fleet_status open_next(text_reader *r)
{
    FL_TRY(fl_file_blocks_open(&r->file));
    r->scanned = 0;
    r->wants_header = r->csv && parser_of(r)->spec->header;
    if (r->csv)
        fl_csv_places(parser_of(r), r->file.in.current);
    return FLEET_OK;
}

static void take_line(text_reader *r, size_t size, fl_line *line)
{
    /* some programs begin a file with it, to say that it is UTF-8 */
    static const char mark[] = "\xEF\xBB\xBF";
    const size_t n = sizeof mark - 1;
    const char *text = fl_file_blocks_at(&r->file);

    if (r->file.number == 0 && size >= n && memcmp(text, mark, n) == 0) {
        text += n;
        size -= n;
    }
    if (size > 0 && text[size - 1] == '\r')
        size--;
    *line = (fl_line){.text = text,
                      .size = (uint32_t)size,
                      .file = r->file.in.current,
                      .number = ++r->file.number};
}

/* The next line of the file that is open; *any is false at its end. */
static fleet_status next_line(text_reader *r, fl_line *line, bool *any)
{
    fl_file_blocks *f = &r->file;
    const char *newline = NULL;
    size_t size;

    for (;;) {
        size = f->filled - f->begin;
        if (size > r->scanned)
            newline = memchr(fl_file_blocks_at(f) + r->scanned, '\n',
                             size - r->scanned);
        if (newline || f->at_end)
            break;
        r->scanned = size;
        FL_TRY(fl_file_blocks_more(f, "line"));
    }
    *any = newline || size > 0;
    if (!*any)
        return FLEET_OK;
    if (newline)
        size = (size_t)(newline - fl_file_blocks_at(f));
    take_line(r, size, line);
    f->begin += size + (newline != NULL);
    r->scanned = 0;
    return FLEET_OK;
}

static bool is_nothing(const text_reader *r, const fl_line *line)
{
    uint32_t i = 0;

    if (line->size == 0)
        return true;
    if (r->csv && line->number <= parser_of(r)->spec->skip_lines)
        return true;
    if (r->comment && *line->text == r->comment)
        return true;
    while (i < line->size && fl_is_blank(line->text[i]))
        i++;
    return i == line->size || (r->libsvm && line->text[i] == r->comment);
}

/* The next line that is a sample. */
static fleet_status next_sample(text_reader *r, fl_line *line)
{
    for (;;) {
        bool any = false;

        if (r->file.open)
            FL_TRY(next_line(r, line, &any));
        if (!any) {
            FL_TRY(open_next(r));
        } else if (is_nothing(r, line)) {
            continue;
        } else if (r->wants_header) {
            FL_TRY(fl_csv_header(parser_of(r), &r->cells, line));
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
    const int64_t most = parser_of(r)->spec->batch_bytes;
    int64_t bytes = 0;

    for (*got = 0; *got < n && (most == 0 || bytes < most); ++*got) {
        fl_line line;

        FL_TRY(next_sample(r, &line));
        bytes += line.size;
        if (lines)
            FL_TRY(
                fl_lines_add(lines, r->file.env.blocks, r->file.block, &line));
    }
    reader->share = fl_file_blocks_share(&r->file, reader->share);
    return FLEET_OK;
}

static void text_close(fl_reader *reader)
{
    text_reader *r = (text_reader *)reader;

    fl_file_blocks_done(&r->file);
    fl_csv_cells_done(&r->cells);
    fl_free(r);
}

fleet_status fl_text_reader_open(fl_reader **reader, const fl_reader_env *env)
{
    const fl_stream_spec *spec = env->parser->spec;
    fleet_status status;
    text_reader *r;

    FL_TRY(FL_NEW(&r, sizeof *r));
    r->reader = (fl_reader){text_start, text_read, text_close, 0};
    r->csv = spec->format == FLEET_CSV;
    r->libsvm = spec->format == FLEET_LIBSVM;
    r->comment = r->libsvm ? '#' : spec->comment;
    status = fl_file_blocks_init(&r->file, env);
    if (status != FLEET_OK) {
        fl_free(r);
        return status;
    }
    *reader = &r->reader;
    return FLEET_OK;
}
