/* real_data_test.c - real data sets, against counts and sums that Python made
 * of the same files. */
#define SUITE real_data
#include "data_kit.h"
#include "test.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "data/format/formats.h"

/* Calls see() for every batch of the stream; how many rows there are. */
static int64_t for_all(const fl_stream_spec *spec,
                       void (*see)(const fl_batch *b, double *sum), double *sum)
{
    fl_stream *s;
    fl_batch *b;
    fleet_status status;
    int64_t rows = 0;

    CHECK_OK(fl_stream_open(&s, spec));
    while ((status = fl_stream_next(s, &b)) == FLEET_OK) {
        see(b, sum);
        rows += b->rows;
        fl_stream_release(s, b);
    }
    CHECK_STATUS(status, FLEET_EEND);
    fl_stream_close(s);
    return rows;
}

static void add_ids(const fl_batch *b, double *sum)
{
    for (int64_t i = 0; i < b->rows; i++) {
        sum[0] += (double)((const float *)b->slot[0].values)[i];
        for (int c = 1; c < 6; c++)
            sum[c] += (double)((const int64_t *)b->slot[c].values)[i];
    }
}

TEST(criteo_attr_has_the_rows_clicks_and_ids_of_its_readme)
{
    static const double want[2][6] = {
        {44861, 2771625829991, 3568510506770, 1896597263284, 3111216200614,
         2974754747039},
        {7415, 435635809279, 575395549142, 293092407299, 490630411480,
         479831089519}};
    static const char *const column[] = {"0", "1", "2", "3", "4", "5"};
    static const char *const name[] = {"click", "cat1", "cat4",
                                       "cat6",  "cat8", "cat9"};
    static const fleet_transform none = FLEET_TRANSFORM_NONE;
    fleet_slot slots[6];

    for (int i = 0; i < 6; i++)
        slots[i] = (fleet_slot){.name = name[i],
                                .dtype = i ? FLEET_INT64 : FLEET_FLOAT32,
                                .columns = &column[i],
                                .n_column = 1,
                                .transforms = &none,
                                .n_transform = 1};
    for (int t = 0; t < 2; t++) {
        const char *files[] = {
            test_data(t ? "criteo_attr/criteo_attr_test_20k.tsv.gz"
                        : "criteo_attr/criteo_attr_train_125k.tsv.gz")};
        fl_stream_spec spec = data_spec(FLEET_CSV, slots, 6, files, 1);
        double sum[6] = {0};

        spec.separator = '\t';
        spec.batch_size = 512;
        spec.n_thread = 1 + t;
        spec.shuffle = t * 5000;
        CHECK_INT(for_all(&spec, add_ids, sum), t ? 20000 : 125152);
        for (int c = 0; c < 6; c++)
            CHECK(sum[c] == want[t][c]);
    }
}

/* Adult's slots. */
static const char *const dense_columns[] = {"0", "2", "4", "10", "11", "12"},
                         *const income_column[] = {"14"},
                         *const class_column[] = {"1"},
                         *const rich[] = {">50K", ">50K."};
static const fleet_transform dense_transforms[] = {
    FLEET_STANDARDIZE,       FLEET_LOG1P_STANDARDIZE, FLEET_STANDARDIZE,
    FLEET_LOG1P_STANDARDIZE, FLEET_LOG1P_STANDARDIZE, FLEET_STANDARDIZE};
static const fleet_transform equals = FLEET_EQUALS, hash = FLEET_HASH;
static const fleet_slot adult[] = {{.name = "income",
                                    .columns = income_column,
                                    .n_column = 1,
                                    .transforms = &equals,
                                    .n_transform = 1,
                                    .equals = rich,
                                    .n_equals = 2},
                                   {.name = "dense",
                                    .dim = 6,
                                    .columns = dense_columns,
                                    .n_column = 6,
                                    .transforms = dense_transforms,
                                    .n_transform = 6},
                                   {.name = "workclass",
                                    .dtype = FLEET_INT64,
                                    .columns = class_column,
                                    .n_column = 1,
                                    .transforms = &hash,
                                    .n_transform = 1}};

/* Incomes, then the dense columns' sums and squares, then missing classes. */
static void add_adult(const fl_batch *b, double *sum)
{
    const uint64_t missing = fl_hash("", 0, 2);

    for (int64_t i = 0; i < b->rows; i++) {
        const float *x = (const float *)b->slot[1].values + 6 * i;

        sum[0] += (double)((const float *)b->slot[0].values)[i];
        for (int c = 0; c < 6; c++) {
            sum[1 + c] += (double)x[c];
            sum[7 + c] += (double)x[c] * (double)x[c];
        }
        sum[13] += ((const uint64_t *)b->slot[2].values)[i] == missing;
    }
}

TEST(adult_is_standardized_by_its_training_data)
{
    static const double mean[] = {38.58164675532078,  11.983778013553241,
                                  10.0806793403151,   0.7346209104536999,
                                  0.3503050812236688, 40.437455852092995};
    static const double deviation[] = {13.640223092304275, 0.6307283664624653,
                                       2.5726808256012865, 2.4547000452879626,
                                       1.5845566400723234, 12.34723907570799};
    const char *files[] = {test_data("adult/adult.data.gz")};
    fl_stream_spec spec = data_spec(FLEET_CSV, adult, 3, files, 1);
    double sum[14] = {0}, test[14] = {0};
    fl_statistics s;

    spec.missing = "?";
    spec.comment = '|';
    spec.batch_size = 128;
    spec.n_thread = 2;
    CHECK_OK(fl_stream_statistics(&spec, &s));
    CHECK_INT(s.n, 6);
    for (int i = 0; i < 6; i++) {
        CHECK(fabs(s.mean[i] - mean[i]) < 1e-12 * fabs(mean[i]));
        CHECK(fabs(s.deviation[i] - deviation[i]) < 1e-12 * deviation[i]);
    }
    spec.statistics = &s;
    CHECK_INT(for_all(&spec, add_adult, sum), 32561);
    CHECK(sum[0] == 7841);
    CHECK(sum[13] == 1836);
    for (int c = 0; c < 6; c++) {
        CHECK(fabs(sum[1 + c] / 32561) < 1e-6);
        CHECK(fabs(sum[7 + c] / 32561 - 1) < 1e-6);
    }
    files[0] = test_data("adult/adult.test.first13025.gz");
    CHECK_INT(for_all(&spec, add_adult, test), 13025);
    CHECK(test[0] == 3048);
    CHECK(test[13] == 757);
    CHECK(fabs(test[1] - (505214 - 13025 * mean[0]) / deviation[0]) < 1e-2);
    fl_statistics_done(&s);
}

/* Pixels, as bytes, and labels. */
static void add_images(const fl_batch *b, double *sum)
{
    for (int64_t i = 0; i < b->rows * 784; i++) {
        float x = ((const float *)b->slot[0].values)[i] * 255.0f;

        sum[0] += (double)rintf(x);
    }
    for (int64_t i = 0; i < b->rows; i++)
        sum[1] += (double)((const int64_t *)b->slot[1].values)[i];
}

static void check_images(const char *images, const char *labels, int64_t rows,
                         double pixels, double digits)
{
    const char *const files[] = {images, labels};
    fl_stream_spec spec;
    const fleet_slot *slots;
    double sum[2] = {0};
    int n;

    CHECK_OK(fl_format_own_slots(FLEET_IDX, images, &slots, &n));
    CHECK_INT(slots[0].dim, 784);
    spec = data_spec(FLEET_IDX, slots, n, files, 2);
    spec.batch_size = 1000;
    spec.n_thread = 2;
    CHECK_INT(for_all(&spec, add_images, sum), rows);
    CHECK(sum[0] == pixels);
    CHECK(sum[1] == digits);
    fl_format_free_own_slots(slots);
}

TEST(mnist_has_its_pixels_and_digits)
{
    check_images(test_data("mnist/t10k-images-idx3-ubyte.gz"),
                 test_data("mnist/t10k-labels-idx1-ubyte.gz"), 10000, 264923200,
                 44434);
    if (test_fraction() == 1)
        check_images(test_data("mnist/train-images-idx3-ubyte.gz"),
                     test_data("mnist/train-labels-idx1-ubyte.gz"), 60000,
                     1567298545, 267236);
}

TEST(fashion_mnist_has_its_pixels_and_classes)
{
#define FASHION "/usr/share/datasets/fashion-mnist/"
    if (access(FASHION "t10k-images-idx3-ubyte.gz", R_OK) != 0)
        test_skip("the package dataset-fashion-mnist is absent");
    check_images(FASHION "t10k-images-idx3-ubyte.gz",
                 FASHION "t10k-labels-idx1-ubyte.gz", 10000, 573469082, 45000);
    if (test_fraction() == 1)
        check_images(FASHION "train-images-idx3-ubyte.gz",
                     FASHION "train-labels-idx1-ubyte.gz", 60000, 3431114169,
                     270000);
}

/* Ten lines of "feasign:slot" pairs, made into MultiSlot lines on the way. */
static void add_feasigns(const fl_batch *b, double *sum)
{
    for (int64_t i = 0; i < b->rows; i++)
        sum[0] += (double)((const float *)b->slot[0].values)[i];
    sum[1] += (double)b->slot[1].offsets[b->rows];
    for (int64_t i = 0; i < b->slot[1].offsets[b->rows]; i++)
        ((uint64_t *)sum)[2] ^= ((const uint64_t *)b->slot[1].values)[i];
}

TEST(slot_demo_goes_through_a_command)
{
    static const fleet_slot slots[] = {
        {.name = "click"},
        {.name = "feasigns", .dtype = FLEET_INT64, .dim = -1}};
    const char *files[] = {test_data("slot_demo/slot_dnn_demo_10.txt.gz")};
    fl_stream_spec spec = data_spec(FLEET_MULTISLOT, slots, 2, files, 1);
    double sum[3] = {0}, again[3] = {0};

    spec.pipe_command = "sed 's/:[0-9]*//g' | awk '{l = $1; $1 = \"\"; "
                        "print 1, l, NF - 1, $0}'";
    CHECK_INT(for_all(&spec, add_feasigns, sum), 10);
    CHECK(sum[0] >= 0 && sum[0] <= 10);
    CHECK(sum[1] > 3800 && sum[1] < 5400);
    spec.n_thread = 3;
    spec.batch_size = 3;
    CHECK_INT(for_all(&spec, add_feasigns, again), 10);
    CHECK(!memcmp(sum, again, sizeof sum));
}
