/* projector.c - rows pass by once, or twice where the most updated ones have to
 * be found first: a table need not fit into memory. The form is that of
 * TensorBoard's plug-in: values between tabs, a row a line; what a row is, in
 * another file with as many lines and a head; and a text of protobuf that names
 * both (tensorboard/plugins/projector/projector_config.proto). */
#include "projector.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "base/file.h"
#include "base/file/file_writer.h"
#include "base/folder.h"
#include "base/memory.h"
#include "base/text.h"
#include "difference.h"

/* A row by how well it is known; of equal ones the smaller key comes first. */
typedef struct rank {
    uint32_t updates;
    uint64_t key;
} rank;

typedef struct projecting {
    const projection *p;
    const fl_saved_item *table;
    rank *heap; /* the best ones so far: the last of them is heap[0] */
    int64_t n_heap;
    int64_t rows;
    fl_writer vectors, metadata;
    fl_text line;
} projecting;

/* --- the most updated ones ------------------------------------------------ */

static bool is_before(rank a, rank b)
{
    return a.updates != b.updates ? a.updates > b.updates : a.key < b.key;
}

static void swap(rank *a, rank *b)
{
    const rank was = *a;

    *a = *b;
    *b = was;
}

static void sift_up(rank *heap, int64_t i)
{
    for (; i > 0 && is_before(heap[(i - 1) / 2], heap[i]); i = (i - 1) / 2)
        swap(&heap[(i - 1) / 2], &heap[i]);
}

static void sift_down(rank *heap, int64_t n)
{
    for (int64_t i = 0, child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_before(heap[child], heap[child + 1]))
            child++;
        if (!is_before(heap[i], heap[child]))
            return;
        swap(&heap[i], &heap[child]);
    }
}

static void rank_row(projecting *x, rank r)
{
    if (x->n_heap < x->p->most) {
        x->heap[x->n_heap++] = r;
        sift_up(x->heap, x->n_heap - 1);
    } else if (is_before(r, x->heap[0])) {
        x->heap[0] = r;
        sift_down(x->heap, x->n_heap);
    }
}

/* --- rows ----------------------------------------------------------------- */

static rank rank_of(const fl_saved_rows *rows, uint64_t i)
{
    rank r;

    memcpy(&r.key, rows->keys + (size_t)i * sizeof r.key, sizeof r.key);
    memcpy(&r.updates, rows->steps + (size_t)i * sizeof r.updates,
           sizeof r.updates);
    return r;
}

static fleet_status rank_record(void *arg, const fl_saved_record *r)
{
    projecting *x = arg;
    fl_saved_rows rows;

    if (r->item != x->table || r->head.kind != FL_RECORD_ROWS)
        return FLEET_OK;
    rows = fl_saved_rows_of(r);
    for (uint64_t i = 0; i < r->head.n; i++)
        rank_row(x, rank_of(&rows, i));
    return FLEET_OK;
}

static void put_line(projecting *x, fl_writer *to)
{
    fl_text_add(&x->line, "\n");
    fl_writer_put(to, fl_text_chars(&x->line), x->line.length);
    x->line.length = 0;
}

static void write_row(projecting *x, const char *at, rank r)
{
    for (int64_t i = 0; i < x->table->shape.dim[1]; i++) {
        float value;

        memcpy(&value, at + (size_t)i * sizeof value, sizeof value);
        fl_text_add(&x->line, "%s%.*g", i > 0 ? "\t" : "", DIGITS,
                    (double)value);
    }
    put_line(x, &x->vectors);
    fl_text_add(&x->line, "%" PRIu64 "\t%" PRIu32, r.key, r.updates);
    put_line(x, &x->metadata);
    x->rows++;
}

static fleet_status write_record(void *arg, const fl_saved_record *r)
{
    projecting *x = arg;
    const size_t row = (size_t)fl_saved_width(x->table) * sizeof(float);
    fl_saved_rows rows;

    if (r->item != x->table || r->head.kind != FL_RECORD_ROWS)
        return FLEET_OK;
    rows = fl_saved_rows_of(r);
    for (uint64_t i = 0; i < r->head.n; i++) {
        const rank one = rank_of(&rows, i);

        if (x->p->most == 0 || !is_before(x->heap[0], one))
            write_row(x, rows.values + i * row, one);
    }
    return x->line.status;
}

/* --- files ---------------------------------------------------------------- */

static const char *const names[] = {"vectors.tsv", "metadata.tsv",
                                    "projector_config.pbtxt"};
static const char *const made[] = {".vectors.tsv.new", ".metadata.tsv.new",
                                   ".projector_config.pbtxt.new"};

/* A name may have any bytes; protobuf's texts are quoted as C's are. */
static void add_quoted(fl_text *t, const char *name)
{
    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        if (*c < ' ' || *c >= 127 || *c == '"' || *c == '\\')
            fl_text_add(t, "\\%03o", (unsigned)*c);
        else
            fl_text_add(t, "%c", *c);
}

static fleet_status write_config(projecting *x)
{
    fl_text t = {0};
    fleet_status status;

    fl_text_add(&t, "embeddings {\n  tensor_name: \"");
    add_quoted(&t, x->table->name);
    fl_text_add(&t,
                "\"\n  tensor_shape: %" PRId64 "\n  tensor_shape: %" PRId64
                "\n  tensor_path: \"%s\"\n  metadata_path: \"%s\"\n}\n",
                x->rows, x->table->shape.dim[1], names[0], names[1]);
    status = t.status;
    if (status == FLEET_OK)
        status = fl_file_write(x->p->folder, made[2], t.chars, t.length, NULL);
    fl_text_done(&t);
    return status;
}

static fleet_status put_in_place(const projecting *x)
{
    fleet_status status = FLEET_OK;

    for (int i = 0; i < 3 && status == FLEET_OK; i++) {
        fl_text from = {0}, to = {0};

        fl_text_add(&from, "%s/%s", x->p->folder, made[i]);
        fl_text_add(&to, "%s/%s", x->p->folder, names[i]);
        status = from.status != FLEET_OK ? from.status : to.status;
        if (status == FLEET_OK)
            status = fl_file_replace(from.chars, to.chars);
        fl_text_done(&from);
        fl_text_done(&to);
    }
    return status;
}

static void remove_made(const projection *p)
{
    for (int i = 0; i < 3; i++) {
        fl_text path = {0};

        fl_text_add(&path, "%s/%s", p->folder, made[i]);
        if (path.status == FLEET_OK)
            fl_disk_remove(AT_FDCWD, path.chars, 0);
        fl_text_done(&path);
    }
}

static fleet_status write_rows(projecting *x, const fl_saved *s)
{
    static const char head[] = "key\tupdates\n";
    fleet_status vectors, metadata, status;

    remove_made(x->p); /* what a process that was killed has left */
    status = fl_writer_open(&x->vectors, x->p->folder, made[0]);
    if (status != FLEET_OK) {
        (void)fl_writer_close(&x->vectors, NULL, NULL);
        return status;
    }
    status = fl_writer_open(&x->metadata, x->p->folder, made[1]);
    fl_writer_put(&x->metadata, head, sizeof head - 1);
    if (status == FLEET_OK)
        status = fl_saved_each(s, write_record, x);
    vectors = fl_writer_close(&x->vectors, NULL, NULL);
    metadata = fl_writer_close(&x->metadata, NULL, NULL);
    if (status == FLEET_OK)
        status = vectors;
    return status == FLEET_OK ? metadata : status;
}

static fleet_status find_table(projecting *x, const char *path,
                               const fl_saved *s)
{
    const char *name = x->p->table;

    if (!name && s->n_table != 1)
        return fl_fail(FLEET_EINVAL,
                       "%s has %d tables: --table says which one is "
                       "projected",
                       path, s->n_table);
    x->table = NULL;
    for (int i = 0; i < s->n_table; i++)
        if (!name || strcmp(s->table[i].name, name) == 0)
            x->table = &s->table[i];
    return x->table
               ? FLEET_OK
               : fl_fail(FLEET_ENOENT, "%s has no table \"%s\"", path, name);
}

/* --- the command ---------------------------------------------------------- */

typedef struct asked {
    const char *path;
    const projection *p;
} asked;

static fleet_status say(const projecting *x)
{
    fl_json *line = fl_json_object();

    fl_json_put(line, "table", fl_json_string(x->table->name));
    fl_json_put(line, "dim", fl_json_int(x->table->shape.dim[1]));
    fl_json_put(line, "rows", fl_json_int(x->rows));
    FL_TRY(fl_json_put(line, "projector", fl_json_string(x->p->folder)));
    return print_line(line);
}

/* From the beginning, should another save take the place of this one. */
static fleet_status project(void *arg, fl_saved *s)
{
    const asked *a = arg;
    projecting x = {.p = a->p, .vectors = {.fd = -1}, .metadata = {.fd = -1}};
    fleet_status status;

    FL_TRY(find_table(&x, a->path, s));
    if (a->p->most > 0) {
        int64_t most = a->p->most < x.table->n ? a->p->most : x.table->n;

        x.heap = fl_alloc_array((size_t)most + 1, sizeof *x.heap);
        FL_GOTO(done, x.heap ? FLEET_OK
                             : fl_fail(FLEET_ENOMEM, "out of memory: ranks"));
        FL_GOTO(done, fl_saved_each(s, rank_record, &x));
    }
    FL_GOTO(done, write_rows(&x, s));
    FL_GOTO(done, write_config(&x));
    FL_GOTO(done, put_in_place(&x));
    status = say(&x);
done:
    if (status != FLEET_OK)
        remove_made(a->p);
    fl_free(x.heap);
    fl_text_done(&x.line);
    return status;
}

fleet_status print_projection(const char *path, const projection *p)
{
    asked a = {path, p};

    if (fl_disk_make_folder(p->folder, 0777) != 0 && errno != EEXIST)
        return fl_fail(FLEET_EIO, "cannot make %s: %s", p->folder,
                       strerror(errno));
    return fl_saved_use(path, NULL, project, &a);
}
