/* idx_test.c - MNIST's format, small files made here. */
#define SUITE idx
#include "data/format/formats.h"
#include "data_kit.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 6, SAMPLES = 5 };

typedef struct idx {
    unsigned char images[16 + WIDTH * SAMPLES];
    unsigned char labels[8 + SAMPLES];
} idx;

static idx make(void)
{
    static const unsigned char images[] = {0, 0, 8, 3, 0, 0, 0, SAMPLES,
                                           0, 0, 0, 2, 0, 0, 0, 3};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, SAMPLES};
    idx x;

    memcpy(x.images, images, 16);
    memcpy(x.labels, labels, 8);
    for (int i = 0; i < WIDTH * SAMPLES; i++)
        x.images[16 + i] = (unsigned char)(i * 37);
    for (int i = 0; i < SAMPLES; i++)
        x.labels[8 + i] = (unsigned char)(i == 4 ? 255 : i);
    return x;
}

static const char *files[2];

static fl_stream_spec spec_of(const void *images, size_t n, const void *labels,
                              size_t m)
{
    static const fleet_slot slots[] = {
        {.name = "image", .dim = WIDTH},
        {.name = "label", .dtype = FLEET_INT64, .dim = 1}};

    files[0] = test_file_bytes("images", images, n);
    files[1] = test_file_bytes("labels", labels, m);
    return data_spec(FLEET_IDX, slots, 2, files, 2);
}

static fl_stream_spec whole(void)
{
    idx x = make();

    return spec_of(x.images, sizeof x.images, x.labels, sizeof x.labels);
}

TEST(pixels_are_divided_by_255_and_labels_are_bytes)
{
    fl_stream_spec spec = whole();
    const fleet_slot *slots;
    const fl_batch *b;
    int n;

    CHECK_OK(fl_format_own_slots(FLEET_IDX, files[0], &slots, &n));
    CHECK_INT(n, 2);
    CHECK_TEXT(slots[0].name, "image");
    CHECK_INT(slots[0].dim, WIDTH);
    CHECK_INT(slots[1].dtype, FLEET_INT64);
    spec.slots = slots;
    spec.batch_size = 100;
    b = data_first(&spec);
    CHECK_INT(b->rows, SAMPLES);
    for (int i = 0; i < WIDTH * SAMPLES; i++)
        CHECK(((const float *)b->slot[0].values)[i] ==
              (float)(unsigned char)(i * 37) / 255.0f);
    CHECK_INT(((const int64_t *)b->slot[1].values)[3], 3);
    CHECK_INT(((const int64_t *)b->slot[1].values)[4], 255);
    fl_format_free_own_slots(slots);
}

TEST(packed_files_give_the_same_samples)
{
    fl_stream_spec spec = whole();
    data_dump plain = data_read(&spec), packed;
    idx x = make();

    CHECK_STATUS(plain.status, FLEET_EEND);
    CHECK_INT(plain.batches, 3);
    files[0] = data_gz("images.gz", x.images, sizeof x.images);
    files[1] = data_gz("labels.gz", x.labels, sizeof x.labels);
    packed = data_read_n(spec, 3);
    CHECK(data_same(&plain, &packed));
}

TEST(samples_can_be_shuffled_and_shared)
{
    fl_stream_spec spec = whole();
    data_dump one, other;
    fl_stream *s;
    fl_batch *b;
    int seen = 0;

    spec.shuffle = 3;
    one = data_read(&spec);
    other = data_read_n(spec, 4);
    CHECK_STATUS(one.status, FLEET_EEND);
    CHECK(data_same(&one, &other));
    spec.batch_size = 1;
    spec.share_count = 2;
    for (spec.share_index = 0; spec.share_index < 2; spec.share_index++) {
        CHECK_OK(fl_stream_open(&s, &spec));
        while (fl_stream_next(s, &b) == FLEET_OK) {
            int64_t label = *(const int64_t *)b->slot[1].values;
            int i = label == 255 ? 4 : (int)label;

            CHECK(((const float *)b->slot[0].values)[1] ==
                  (float)(unsigned char)((i * WIDTH + 1) * 37) / 255.0f);
            seen |= 1 << i;
            fl_stream_release(s, b);
        }
        fl_stream_close(s);
    }
    CHECK_INT(seen, 31);
}

/* One byte of a file is changed, or the file is cut off or longer. */
static void refused(int image_at, int label_at, int value, fleet_status status,
                    const char *file, const char *words)
{
    idx x = make();
    fl_stream_spec spec;

    if (image_at >= 0)
        x.images[image_at] = (unsigned char)value;
    if (label_at >= 0)
        x.labels[label_at] = (unsigned char)value;
    spec = spec_of(x.images, sizeof x.images, x.labels, sizeof x.labels);
    DATA_FAILS(&spec, status, file, words);
}

TEST(other_files_than_images_and_labels_are_refused)
{
    refused(3, -1, 1, FLEET_EFORMAT, "/images", "2051");
    refused(2, -1, 9, FLEET_EFORMAT, "/images", "2051");
    refused(-1, 3, 3, FLEET_EFORMAT, "/labels", "2049");
    refused(7, -1, 0, FLEET_EFORMAT, "/images", "without data");
    refused(11, -1, 0, FLEET_EFORMAT, "/images", "without data");
    refused(15, -1, 0, FLEET_EFORMAT, "/images", "without data");
    refused(-1, 7, 0, FLEET_EFORMAT, "/labels", "without data");
    refused(7, -1, 4, FLEET_EFORMAT, "4 images", "5 labels");
    refused(-1, 7, 6, FLEET_EFORMAT, "5 images", "6 labels");
    refused(11, -1, 3, FLEET_ECONFIG, "9 pixels", "dim of 6");
    refused(8, -1, 200, FLEET_EFORMAT, "/images", "too large");
}

TEST(files_that_are_cut_off_or_too_long_are_refused)
{
    idx x = make();
    unsigned char longer[sizeof x.images + 1] = {0};
    fl_stream_spec spec;

    for (size_t n = 0; n < sizeof x.images; n += 5) {
        spec = spec_of(x.images, n, x.labels, sizeof x.labels);
        DATA_FAILS(&spec, FLEET_ECORRUPT, "/images");
    }
    for (size_t n = 0; n < sizeof x.labels; n += 3) {
        spec = spec_of(x.images, sizeof x.images, x.labels, n);
        DATA_FAILS(&spec, FLEET_ECORRUPT, "/labels");
    }
    spec = spec_of(x.images, sizeof x.images - 1, x.labels, sizeof x.labels);
    DATA_FAILS(&spec, FLEET_ECORRUPT, "cut off after 4 of 5");
    memcpy(longer, x.images, sizeof x.images);
    spec = spec_of(longer, sizeof longer, x.labels, sizeof x.labels);
    DATA_FAILS(&spec, FLEET_EFORMAT, "/images", "longer");
}

TEST(a_damaged_packed_file_is_refused)
{
    idx x = make();
    fl_stream_spec spec = whole();
    unsigned char *bytes;
    FILE *f;
    long size;

    files[0] = data_gz("images.gz", x.images, sizeof x.images);
    f = fopen(files[0], "rb");
    bytes = malloc(1000);
    size = (long)fread(bytes, 1, 1000, f);
    fclose(f);
    bytes[size - 5] ^= 1; /* of the checksum */
    files[0] = test_file_bytes("bad.gz", bytes, (size_t)size);
    DATA_FAILS(&spec, FLEET_ECORRUPT, "bad.gz", "damaged");
    files[0] = test_file_bytes("short.gz", bytes, (size_t)size - 6);
    DATA_FAILS(&spec, FLEET_ECORRUPT, "short.gz", "cut off");
    free(bytes);
}

TEST(absent_files_and_wrong_specs_are_refused)
{
    fl_stream_spec spec = whole();
    const fleet_slot *slots;
    int n;

    files[1] = "/no/such/labels";
    DATA_FAILS(&spec, FLEET_ENOENT, "/no/such/labels");
    CHECK_FAILS(fl_format_own_slots(FLEET_IDX, "/no/such/images", &slots, &n),
                FLEET_ENOENT, "/no/such/images");
    spec = whole();
    spec.n_file = 1;
    DATA_FAILS(&spec, FLEET_ECONFIG, "two files");
    spec = whole();
    spec.pipe_command = "tac";
    DATA_FAILS(&spec, FLEET_ECONFIG, "pipe_command");
    spec = whole();
    spec.n_slot = 1;
    DATA_FAILS(&spec, FLEET_ECONFIG, "have their own");
}
