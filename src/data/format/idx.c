/* idx.c - images and labels from two files. A sample's "line" is its pixels
 * and then its label. */
#include "data/format/idx.h"

#include <inttypes.h>
#include <string.h>

#include "base/memory.h"
#include "data/io/unpack.h"

enum {
    IMAGES_MAGIC = 2051, /* unsigned bytes in 3 dimensions */
    LABELS_MAGIC = 2049, /* in 1 */
    MOST_DIMS = 3
};

typedef struct idx_file {
    const char *path;
    fl_unpack *unpack;
    uint32_t dim[MOST_DIMS];
    int n_dim;
} idx_file;

/* size bytes, or as many as there are. */
static fleet_status read_up_to(idx_file *f, void *to, size_t size, size_t *got)
{
    size_t n = 1;

    for (*got = 0; *got < size && n > 0; *got += n)
        FL_TRY(fl_unpack_read(f->unpack, (char *)to + *got, size - *got, &n));
    return FLEET_OK;
}

static uint32_t big_endian(const unsigned char *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 |
           p[3];
}

static fleet_status read_header(idx_file *f, uint32_t magic)
{
    unsigned char head[4 * (1 + MOST_DIMS)];
    const size_t size = 4 * (1 + (size_t)f->n_dim);
    size_t got;

    FL_TRY(read_up_to(f, head, size, &got));
    if (got < size)
        return fl_fail(FLEET_ECORRUPT, "%.500s: it ends inside its header",
                       f->path);
    if (big_endian(head) != magic)
        return fl_fail(FLEET_EFORMAT,
                       "%.500s: expected the magic number %" PRIu32
                       " of idx %s, got %" PRIu32,
                       f->path, magic,
                       magic == IMAGES_MAGIC ? "images" : "labels",
                       big_endian(head));
    for (int i = 0; i < f->n_dim; i++) {
        f->dim[i] = big_endian(head + 4 * (i + 1));
        if (f->dim[i] == 0)
            return fl_fail(FLEET_EFORMAT, "%.500s: an idx file without data",
                           f->path);
    }
    return FLEET_OK;
}

static fleet_status open_images(idx_file *f, const char *path, int64_t *width)
{
    uint64_t pixels;

    *f = (idx_file){.path = path, .n_dim = 3};
    FL_TRY(fl_unpack_open(&f->unpack, path));
    FL_TRY(read_header(f, IMAGES_MAGIC));
    pixels = (uint64_t)f->dim[1] * f->dim[2];
    if (pixels > FL_LINE_LIMIT)
        return fl_fail(FLEET_EFORMAT,
                       "%.500s: images of %" PRIu64 " pixels are too large",
                       path, pixels);
    *width = (int64_t)pixels;
    return FLEET_OK;
}

fleet_status fl_idx_slots(const char *images, fleet_slot **slots, int *n)
{
    fleet_status status;
    int64_t width;
    fleet_slot *s;
    idx_file f;

    if (!images)
        return fl_fail(FLEET_EINVAL, "idx: there is no file of images");
    status = open_images(&f, images, &width);
    fl_unpack_close(f.unpack);
    FL_TRY(status);
    FL_TRY(FL_NEW(&s, 2 * sizeof *s));
    s[0] = (fleet_slot){.name = "image", .dtype = FLEET_FLOAT32, .dim = width};
    s[1] = (fleet_slot){.name = "label", .dtype = FLEET_INT64, .dim = 1};
    *slots = s;
    *n = 2;
    return FLEET_OK;
}

typedef struct idx_reader {
    fl_reader reader; /* first, so that it is this */
    fl_reader_env env;
    idx_file images, labels;
    int64_t width, n; /* of an image; images */

    unsigned char *pixel, *label; /* of the images that are read at once */
    int64_t at_once;

    fl_block *block; /* those images, each with its label */
    int64_t first;   /* the number of the block's first image */
    int64_t in_block, next;
} idx_reader;

static fleet_status open_labels(idx_reader *r, const char *path)
{
    r->labels = (idx_file){.path = path, .n_dim = 1};
    FL_TRY(fl_unpack_open(&r->labels.unpack, r->labels.path));
    FL_TRY(read_header(&r->labels, LABELS_MAGIC));
    if (r->images.dim[0] == r->labels.dim[0])
        return FLEET_OK;
    return fl_fail(
        FLEET_EFORMAT,
        "%.400s has %" PRIu32 " images, but %.400s has %" PRIu32 " labels",
        r->images.path, r->images.dim[0], r->labels.path, r->labels.dim[0]);
}

static fleet_status idx_start(fl_reader *reader)
{
    idx_reader *r = (idx_reader *)reader;
    const fl_stream_spec *spec = r->env.parser->spec;

    FL_TRY(open_images(&r->images, spec->files[0], &r->width));
    if (!spec->no_label)
        FL_TRY(open_labels(r, spec->files[1]));
    if (r->width != spec->slots[0].dim)
        return fl_fail(FLEET_ECONFIG,
                       "%.500s: its images have %" PRId64 " pixels, but the "
                       "slot \"%s\" has a dim of %" PRId64,
                       r->images.path, r->width, spec->slots[0].name,
                       spec->slots[0].dim);
    r->n = r->images.dim[0];
    r->at_once = FL_BLOCK_SIZE / (r->width + 1);
    if (r->at_once < 1)
        r->at_once = 1;
    FL_TRY(FL_NEW(&r->pixel, (size_t)(r->at_once * r->width)));
    return FL_NEW(&r->label, (size_t)r->at_once);
}

static fleet_status read_exactly(idx_reader *r, idx_file *f, void *to, size_t n,
                                 size_t size)
{
    size_t got;

    FL_TRY(read_up_to(f, to, n * size, &got));
    if (got == n * size)
        return FLEET_OK;
    return fl_fail(FLEET_ECORRUPT,
                   "%.500s: it is cut off after %" PRId64 " of %" PRId64
                   " samples",
                   f->path, r->first + (int64_t)(got / size), r->n);
}

static fleet_status check_end(idx_file *f)
{
    char byte;
    size_t got;

    FL_TRY(read_up_to(f, &byte, 1, &got));
    return got == 0
               ? FLEET_OK
               : fl_fail(FLEET_EFORMAT,
                         "%.500s: it is longer than its header says", f->path);
}

/* The next images and their labels, side by side, into a block. */
static fleet_status read_block(idx_reader *r)
{
    const size_t width = (size_t)r->width;
    int64_t left = r->n - r->first - r->in_block;
    size_t n = (size_t)(left < r->at_once ? left : r->at_once);

    if (atomic_load_explicit(r->env.stop, memory_order_relaxed))
        return fl_fail(FLEET_ESTATE, "the stream was closed");
    if (n == 0) {
        FL_TRY(check_end(&r->images));
        FL_TRY(r->labels.unpack ? check_end(&r->labels) : FLEET_OK);
        return FLEET_EEND;
    }
    r->first += r->in_block;
    r->in_block = r->next = 0;
    FL_TRY(read_exactly(r, &r->images, r->pixel, n, width));
    if (r->labels.unpack) /* else they are the zeros of their memory */
        FL_TRY(read_exactly(r, &r->labels, r->label, n, 1));
    fl_block_drop(r->env.blocks, r->block);
    r->block = NULL;
    FL_TRY(fl_block_get(r->env.blocks, n * (width + 1), &r->block));
    for (size_t i = 0; i < n; i++) {
        char *to = r->block->data + i * (width + 1);

        memcpy(to, r->pixel + i * width, width);
        memcpy(to + width, r->label + i, 1);
    }
    r->in_block = (int64_t)n;
    return FLEET_OK;
}

static fleet_status idx_read(fl_reader *reader, fl_lines *lines, int64_t n,
                             int64_t *got)
{
    idx_reader *r = (idx_reader *)reader;

    for (*got = 0; *got < n; ++*got) {
        fl_line line;

        if (r->next == r->in_block)
            FL_TRY(read_block(r));
        line = (fl_line){.text = r->block->data + r->next * (r->width + 1),
                         .size = (uint32_t)r->width + 1,
                         .number = r->first + r->next + 1};
        r->next++;
        if (lines)
            FL_TRY(fl_lines_add(lines, r->env.blocks, r->block, &line));
    }
    reader->share = (double)(r->first + r->next) / (double)r->n;
    return FLEET_OK;
}

static void idx_close(fl_reader *reader)
{
    idx_reader *r = (idx_reader *)reader;

    fl_block_drop(r->env.blocks, r->block);
    fl_unpack_close(r->images.unpack);
    fl_unpack_close(r->labels.unpack);
    fl_free(r->pixel);
    fl_free(r->label);
    fl_free(r);
}

fleet_status fl_idx_reader_open(fl_reader **reader, const fl_reader_env *env)
{
    idx_reader *r;

    FL_TRY(FL_NEW(&r, sizeof *r));
    r->reader = (fl_reader){idx_start, idx_read, idx_close, 0};
    r->env = *env;
    *reader = &r->reader;
    return FLEET_OK;
}

fleet_status fl_parse_idx(const fl_parser *p, fl_scratch *scratch,
                          fl_batch_buffer *buffer)
{
    const size_t n = buffer->lines.n;
    const size_t width = (size_t)p->layout.field[0].dim;
    float *image;
    int64_t *label;

    (void)scratch;
    FL_TRY(fl_batch_buffer_begin(buffer, &p->layout, (int64_t)n));
    image = buffer->batch.slot[0].values;
    label = buffer->batch.slot[1].values;
    for (size_t i = 0; i < n; i++) {
        const unsigned char *pixel =
            (const unsigned char *)buffer->lines.line[i].text;

        for (size_t j = 0; j < width; j++)
            image[i * width + j] = p->pixel[pixel[j]];
        label[i] = pixel[width];
    }
    return FLEET_OK;
}
