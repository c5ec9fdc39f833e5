/* parquet_reader.c - rows, group by group, as the plug-in libfleet_arrow.so
 * reads them. */
#include "data/format/parquet_reader.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <errno.h>

#include "base/memory.h"
#include "data/format/parquet_block.h"
#include "runtime/device/plugin.h"

enum {
    FIRST_ROWS = 64, /* of a block, before the size of any is known */
    MOST_ROWS = 4096,
    BLOCK_BYTES = 256 << 10 /* about; so that it stays in a cache */
};

typedef struct parquet_reader {
    fl_reader reader; /* first, so that it is this */
    fl_reader_env env;
    const fl_parquet_table *table;
    fl_parquet_column *column; /* as in the layout */
    fl_parquet_piece *piece;
    int n_column;

    fl_parquet_file *file; /* NULL: none is open */
    int at;                /* which of the spec's */
    int group, n_group;
    int64_t left;   /* rows of the group that are in no block yet */
    int64_t number; /* rows of the file that were handed out */
    int64_t rows_in_file;

    fl_block *block;
    size_t row, rows; /* of the block */
    size_t at_once;   /* rows of the next one */
    double row_bytes; /* of the block, on average */

    fl_block *out; /* of rows by themselves */
    size_t filled;
} parquet_reader;

static const fl_stream_spec *spec_of(const parquet_reader *r)
{
    return r->env.parser->spec;
}

static const char *path_of(const parquet_reader *r)
{
    return spec_of(r)->files[r->at];
}

/* --- files ---------------------------------------------------------------- */

static fleet_status refuse_column(const parquet_reader *r, const fl_field *f,
                                  const fl_parquet_column *c, const char *want)
{
    static const char *const kinds[] = {"integers", "integers", "real numbers",
                                        "texts"};

    return fl_fail(FLEET_EFORMAT,
                   "%.500s: column \"%.60s\": expected %s for slot \"%.60s\", "
                   "got %s%s",
                   path_of(r), c->name, want, f->name,
                   c->is_list ? "lists of " : "", kinds[c->kind]);
}

/* What no value of the column can be. */
static fleet_status check_column(const parquet_reader *r, const fl_field *f,
                                 int i)
{
    const fl_parquet_column *c = &r->column[i];
    const fleet_transform t = r->env.parser->layout.column[i].transform;
    const bool one_for_all = f->dim > 1 && f->n_column == 1;
    char want[60];

    snprintf(want, sizeof want, "lists of %" PRId64, f->dim);
    if (one_for_all && !c->is_list)
        return refuse_column(r, f, c, want);
    if (c->is_list && f->dim > 1 && !one_for_all)
        return refuse_column(r, f, c, "single values");
    if (t == FLEET_WORDS && c->kind != FL_PARQUET_TEXT)
        return refuse_column(r, f, c, "texts");
    if ((f->is_id || t == FLEET_EQUALS) && c->kind == FL_PARQUET_REAL)
        return refuse_column(r, f, c, "integers or texts");
    return FLEET_OK;
}

static fleet_status check_columns(const parquet_reader *r)
{
    const fl_layout *l = &r->env.parser->layout;

    for (int i = 0; i < l->n_field; i++)
        for (int k = 0; k < l->field[i].n_column; k++)
            FL_TRY(check_column(r, &l->field[i], l->field[i].first_column + k));
    return FLEET_OK;
}

/* Its end says where all else is, so it is no pipe. */
static fleet_status check_file(const parquet_reader *r)
{
    struct stat st;

    if (spec_of(r)->text)
        return FLEET_OK;
    if (stat(path_of(r), &st) != 0)
        return fl_fail(errno == ENOENT ? FLEET_ENOENT : FLEET_EIO,
                       "cannot open %.500s: %s", path_of(r), strerror(errno));
    return S_ISREG(st.st_mode)
               ? FLEET_OK
               : fl_fail(FLEET_EUNSUPPORTED,
                         "%.500s: a Parquet file is read from its end, so it "
                         "is a regular file",
                         path_of(r));
}

static fleet_status open_next(parquet_reader *r)
{
    const fl_stream_spec *spec = spec_of(r);

    r->table->close(r->file);
    r->file = NULL;
    if (r->at + 1 >= spec->n_file)
        return FLEET_EEND;
    r->at++;
    FL_TRY(check_file(r));
    fl_log_line(spec->log, FLEET_LOG_DEBUG, "reading %s", path_of(r));
    FL_TRY(r->table->open(path_of(r), spec->text, spec->text_size, r->column,
                          r->n_column, &r->file));
    FL_TRY(check_columns(r));
    r->n_group = r->table->count_groups(r->file);
    r->group = -1;
    r->left = r->number = r->rows_in_file = 0;
    for (int g = 0; g < r->n_group; g++)
        r->rows_in_file += r->table->count_rows(r->file, g);
    return FLEET_OK;
}

/* A group that has rows left, and no block. FLEET_EEND: none has. */
static fleet_status find_group(parquet_reader *r)
{
    while (r->left == 0) {
        if (!r->file || r->group + 1 >= r->n_group)
            FL_TRY(open_next(r));
        else
            r->left = r->table->count_rows(r->file, ++r->group);
    }
    return FLEET_OK;
}

static fleet_status parquet_start(fl_reader *reader)
{
    const fleet_status status = open_next((parquet_reader *)reader);

    return status == FLEET_EEND ? FLEET_OK : status;
}

/* --- blocks --------------------------------------------------------------- */

static fl_parquet_block *block_of(const parquet_reader *r)
{
    return (fl_parquet_block *)(void *)r->block->data;
}

static void choose_rows(parquet_reader *r, size_t size)
{
    r->row_bytes = (double)size / (double)r->rows;
    r->at_once = (size_t)(BLOCK_BYTES / r->row_bytes) + 1;
    if (r->at_once > MOST_ROWS)
        r->at_once = MOST_ROWS;
}

static fleet_status read_block(parquet_reader *r)
{
    int64_t some =
        r->left < (int64_t)r->at_once ? r->left : (int64_t)r->at_once;
    size_t rows, size;

    if (atomic_load_explicit(r->env.stop, memory_order_relaxed))
        return fl_fail(FLEET_ESTATE, "the stream was closed");
    fl_block_drop(r->env.blocks, r->block);
    r->block = NULL;
    FL_TRY(r->table->read(r->file, r->group, &some, r->piece));
    rows = (size_t)some;
    size = fl_parquet_block_size(r->piece, r->column, r->n_column, rows);
    if (size == 0)
        return fl_fail(FLEET_EFORMAT,
                       "%.500s:%" PRId64 ": %zu rows of row group %d take 4 GB",
                       path_of(r), r->number + 1, rows, r->group);
    FL_TRY(fl_block_get(r->env.blocks, size, &r->block));
    fl_parquet_block_make(block_of(r), r->piece, r->column, r->n_column, rows,
                          r->group);
    r->left -= (int64_t)rows;
    r->row = 0;
    r->rows = rows;
    choose_rows(r, size);
    return FLEET_OK;
}

/* --- rows ----------------------------------------------------------------- */

static fl_line line_of(const parquet_reader *r)
{
    return (fl_line){.text = r->block->data,
                     .size = (uint32_t)r->row,
                     .file = r->at,
                     .number = r->number + 1};
}

/* A row by itself, in a block of such rows. */
static fleet_status add_row(parquet_reader *r, fl_lines *lines)
{
    const size_t size = fl_parquet_row_size(block_of(r), r->row, r->n_column);
    fl_line line = line_of(r);

    if (!r->out || r->out->capacity - r->filled < size) {
        fl_block_drop(r->env.blocks, r->out);
        r->out = NULL;
        r->filled = 0;
        FL_TRY(fl_block_get(r->env.blocks, size, &r->out));
    }
    fl_parquet_row_make(block_of(r), r->row, r->n_column,
                        r->out->data + r->filled);
    line.text = r->out->data + r->filled;
    line.size = (uint32_t)size;
    r->filled += size;
    return fl_lines_add(lines, r->env.blocks, r->out, &line);
}

/* The next n rows of the block; lines NULL: they are passed over. */
static fleet_status take_rows(parquet_reader *r, fl_lines *lines, int64_t n)
{
    const bool whole = spec_of(r)->shuffle == 0;
    fl_line *line;

    if (lines && whole)
        FL_TRY(fl_lines_add_room(lines, r->env.blocks, r->block, (size_t)n,
                                 &line));
    for (int64_t i = 0; i < n; i++, r->row++, r->number++) {
        if (lines && whole)
            line[i] = line_of(r);
        else if (lines)
            FL_TRY(add_row(r, lines));
    }
    return FLEET_OK;
}

/* Of up to n rows that are passed over: whole groups, unread. */
static fleet_status pass_over(parquet_reader *r, int64_t n, int64_t *got)
{
    *got = 0;
    while (r->row == r->rows) {
        int64_t all;

        FL_TRY(find_group(r));
        all = r->table->count_rows(r->file, r->group);
        if (r->left < all || r->left > n - *got)
            break;
        *got += r->left;
        r->number += r->left;
        r->left = 0;
    }
    return FLEET_OK;
}

static fleet_status read_rows(parquet_reader *r, fl_lines *lines, int64_t n,
                              int64_t *got)
{
    const int64_t most = spec_of(r)->batch_bytes;
    double bytes = 0;

    *got = 0;
    if (!lines)
        FL_TRY(pass_over(r, n, got));
    while (*got < n && (most == 0 || bytes < (double)most)) {
        int64_t some = n - *got;

        if (r->row == r->rows) {
            FL_TRY(find_group(r));
            FL_TRY(read_block(r));
        }
        if (some > (int64_t)(r->rows - r->row))
            some = (int64_t)(r->rows - r->row);
        FL_TRY(take_rows(r, lines, some));
        bytes += r->row_bytes * (double)some;
        *got += some;
    }
    return FLEET_OK;
}

static fleet_status parquet_read(fl_reader *reader, fl_lines *lines, int64_t n,
                                 int64_t *got)
{
    parquet_reader *r = (parquet_reader *)reader;
    const fleet_status status = read_rows(r, lines, n, got);

    if (r->rows_in_file > 0)
        reader->share = (r->at + (double)r->number / (double)r->rows_in_file) /
                        spec_of(r)->n_file;
    return status;
}

static void parquet_close(fl_reader *reader)
{
    parquet_reader *r = (parquet_reader *)reader;

    r->table->close(r->file);
    fl_block_drop(r->env.blocks, r->block);
    fl_block_drop(r->env.blocks, r->out);
    fl_free(r->column);
    fl_free(r->piece);
    fl_free(r);
}

/* --- opened --------------------------------------------------------------- */

fleet_status fl_parquet_reader_table(const fl_parquet_table **table)
{
    const fl_plugin *plugin;
    const fleet_status status = fl_plugin_open("arrow", &plugin);

    if (status != FLEET_OK)
        return fl_fail(FLEET_EUNSUPPORTED,
                       "format parquet needs the plug-in libfleet_arrow.so, "
                       "which is built where Apache Arrow is (make arrow): "
                       "%.600s",
                       fleet_last_error());
    *table = plugin->parquet;
    return *table ? FLEET_OK
                  : fl_fail(FLEET_EUNSUPPORTED,
                            "the plug-in 'arrow' has no Parquet");
}

fleet_status fl_parquet_reader_open(fl_reader **reader,
                                    const fl_reader_env *env)
{
    const fl_layout *l = &env->parser->layout;
    const size_t n = (size_t)l->n_column;
    const fl_parquet_table *table;
    parquet_reader *r;

    FL_TRY(fl_parquet_reader_table(&table));
    FL_TRY(FL_NEW(&r, sizeof *r));
    r->reader = (fl_reader){parquet_start, parquet_read, parquet_close, 0};
    r->env = *env;
    r->table = table;
    r->at = -1;
    r->at_once = FIRST_ROWS;
    r->n_column = l->n_column;
    r->column = fl_alloc_array(n, sizeof *r->column);
    r->piece = fl_alloc_array(n, sizeof *r->piece);
    if (!r->column || !r->piece) {
        parquet_close(&r->reader);
        return FLEET_ENOMEM;
    }
    for (int i = 0; i < l->n_column; i++)
        r->column[i].name = l->column[i].name;
    *reader = &r->reader;
    return FLEET_OK;
}
