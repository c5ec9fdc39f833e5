/* cache_test.c - caches beside files: the same batches, made once, never of
 * another file or of other options, and whatever is wrong with one costs no
 * more than the cache. */
#define _GNU_SOURCE
#define SUITE cache
#include "data_kit.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/cache_file.h"
#include "data/cache_lock.h"
#include "data/format/formats.h"
#include "data/io/paths.h"

enum { LINES = 9000 }; /* of three blocks */

static const fleet_slot slots[] = {
    {.name = "y"},
    {.name = "x", .dim = 3},
    {.name = "a", .dtype = FLEET_INT64},
    {.name = "b", .dtype = FLEET_INT64, .dim = -1},
    {.name = "c", .dtype = FLEET_INT64, .dim = -1, .weighted = 1},
    {.name = "d", .dim = -1}};

static char said[1 << 16];
static size_t n_said;

static void hear(void *user, fleet_log_level level, const char *line)
{
    (void)user;
    if (level >= FLEET_LOG_INFO && n_said < sizeof said - 2000)
        n_said += (size_t)sprintf(said + n_said, "%s\n", line);
}

static fl_log log_to = {.level = FLEET_LOG_INFO,
                        .callback = hear,
                        .lock = PTHREAD_MUTEX_INITIALIZER};
static fl_cache_state state;

static void forget_caches(void)
{
    fl_free(state.whole);
    state = (fl_cache_state){.is_off = false};
}

/* Ids of each width; now and then a line that is no sample. */
static char *put_line(char *to, uint64_t *r, int lines)
{
    const int shift = lines < 3000 ? 57 : lines < 6000 ? 33 : 1;
    const int n = (int)(data_random(r) % 4);

    to += sprintf(to, "1 %d 3 %g 2 -3.5 1 %d %d", (int)(data_random(r) % 2),
                  (double)(data_random(r) % 1000) / 64,
                  (int)(data_random(r) % 70000), n);
    for (int i = 0; i < n; i++)
        to +=
            sprintf(to, " %llu", (unsigned long long)(data_random(r) >> shift));
    to += sprintf(to, n == 2 ? " 2 7:0.25 %d" : " 1 %d",
                  (int)(data_random(r) % 300));
    return to + sprintf(to, n == 1 ? " 1 0.5\n%s" : " 0\n%s",
                        data_random(r) % 50 ? "" : "\n");
}

static const char *write_text(const char *name, uint64_t seed, int lines)
{
    char *text = malloc((size_t)lines * 200 + 1), *to = text;
    const char *path;

    for (int i = 0; i < lines; i++)
        to = put_line(to, &seed, i);
    *to = 0;
    path = test_file(name, text);
    free(text);
    return path;
}

static fl_stream_spec spec_of(const char *const *files, int n)
{
    fl_stream_spec spec =
        data_spec(FLEET_MULTISLOT, slots, DATA_N(slots), files, n);

    spec.batch_size = 500;
    spec.log = &log_to;
    state.is_off = false;
    return spec;
}

static const atomic_bool goes_on; /* no stop was asked for */

static data_dump read_cached(fl_stream_spec spec)
{
    spec.cache = state.is_off ? NULL : &state;
    said[0] = 0;
    n_said = 0;
    return data_read(&spec);
}

static bool was_made(void)
{
    return strstr(said, "making the cache of") != NULL;
}

/* The same end and the same bytes. */
static bool alike(const data_dump *a, const data_dump *b)
{
    return a->status == b->status && a->size == b->size &&
           (a->size == 0 || memcmp(a->bytes, b->bytes, a->size) == 0);
}

/* The cached passes are the text's: *made says whether the first one made the
 * caches, and then the second one did not. */
static void same(const fl_stream_spec *spec, bool made)
{
    data_dump text = data_read(spec), d;

    CHECK_STATUS(text.status, FLEET_EEND);
    CHECK(text.rows > 0);
    d = read_cached(*spec);
    CHECK(was_made() == made);
    CHECK(alike(&d, &text));
    d = read_cached(*spec);
    CHECK_TEXT(said, "");
    CHECK(alike(&d, &text));
}

/* Who may not read the text may not read its values. */
TEST(a_cache_has_the_permissions_of_its_file)
{
    const char *files[] = {write_text("private", 1, 20)};
    fl_stream_spec spec = spec_of(files, 1);
    char cache[4096];
    struct stat st;

    CHECK_INT(chmod(files[0], 0600), 0);
    umask(022);
    same(&spec, true);
    snprintf(cache, sizeof cache, "%s.fleetcache", files[0]);
    CHECK_INT(stat(cache, &st), 0);
    CHECK_INT(st.st_mode & 0777, 0600);
}

/* A cache of the file's group, or one that no other group may read. */
TEST(a_cache_is_read_by_no_group_that_may_not_read_its_file)
{
    enum { GROUP = 4711, OTHER = 65534 };
    const char *files[] = {write_text("shared", 1, 20)};
    fl_stream_spec spec = spec_of(files, 1);
    char cache[4096];
    struct stat st;

    if (geteuid() != 0)
        test_skip("a file of another group needs root");
    umask(022);
    snprintf(cache, sizeof cache, "%s.fleetcache", files[0]);
    CHECK(chown(files[0], OTHER, GROUP) == 0 && chmod(files[0], 0640) == 0);
    same(&spec, true);
    CHECK_INT(stat(cache, &st), 0);
    CHECK_INT(st.st_gid, GROUP);
    CHECK_INT(st.st_mode & 0777, 0640);
    CHECK(unlink(cache) == 0 && chmod(test_folder(), 0777) == 0);
    CHECK(seteuid(OTHER) == 0); /* not of the group */
    same(&spec, true);
    CHECK(seteuid(0) == 0);
    CHECK_INT(stat(cache, &st), 0);
    CHECK(st.st_gid != GROUP);
    CHECK_INT(st.st_mode & 0777, 0600);
    CHECK(unlink(cache) == 0 && chmod(files[0], 0644) == 0);
    CHECK(seteuid(OTHER) == 0);
    same(&spec, true);
    CHECK(seteuid(0) == 0);
    CHECK_INT(stat(cache, &st), 0);
    CHECK_INT(st.st_mode & 0777, 0644);
}

/* Beside a file of that name, which has a cache. */
TEST(standard_input_has_no_cache)
{
    const char *line = "1 1 3 1 2 3 1 4 0 0 0\n", *files[] = {"-"};
    const char *input = test_file("input", line);
    fl_stream_spec spec = spec_of(files, 1);
    data_dump d;

    write_text("-", 1, 20);
    CHECK(chdir(test_folder()) == 0);
    same(&spec, true);
    CHECK(freopen(input, "r", stdin) != NULL);
    spec.any_file = true;
    d = read_cached(spec);
    CHECK_STATUS(d.status, FLEET_EEND);
    CHECK_INT(d.rows, 1);
    CHECK_CONTAINS(said, "- has no cache, and is read as text: standard input");
}

TEST(batches_are_those_of_the_text)
{
    const char *files[] = {write_text("a", 1, LINES), test_file("b", "\n"),
                           write_text("c", 2, 20)};
    fl_stream_spec spec = spec_of(files, 3);
    bool made = true;

    for (int threads = 1; threads <= 3; threads += 2)
        for (int shuffle = 0; shuffle <= 700; shuffle += 700)
            for (int64_t share = 1; share <= 3; share += 2) {
                spec.n_thread = threads;
                spec.shuffle = shuffle;
                spec.share_count = share;
                spec.share_index = share - 1;
                spec.first_batch = share == 1 ? 0 : 2;
                spec.batch_size = shuffle ? 37 : 500;
                same(&spec, made);
                made = false;
            }
}

TEST(each_format_has_caches)
{
    static const fleet_slot svm[] = {
        {.name = "y"},
        {.name = "x", .dtype = FLEET_INT64, .dim = -1, .weighted = 1}};
    static const fleet_slot json[] = {
        {.name = "y"}, {.name = "x", .dtype = FLEET_INT64, .dim = -1}};
    const char *path = test_file("svm", "1 3:0.5\n# no\n\n0 4:1 5:-2\n");
    fl_stream_spec spec = data_spec(FLEET_LIBSVM, svm, 2, &path, 1);

    spec.log = &log_to;
    same(&spec, true);
    path = test_file("json", "{\"y\":1,\"x\":[\"a\",7]}\n{}\n");
    spec = data_spec(FLEET_JSON_LINES, json, 2, &path, 1);
    spec.log = &log_to;
    same(&spec, true);
}

/* A block is read, made and held as a whole. */
TEST(blocks_of_long_lines_have_few_of_them)
{
    enum { LONG = 500000, N = 20 };
    char *text = malloc((LONG + 1) * 2 * N + 100 * N), *to = text;
    const fleet_slot slot = {.name = "x", .dtype = FLEET_INT64, .dim = -1};
    fl_stream_spec spec;
    const char *path;
    fl_cache_file c;

    for (int i = 0; i < N; i++) {
        to += sprintf(to, "%d", LONG);
        for (int j = 0; j < LONG; j++)
            to = strcpy(to, " 7") + 2;
        to = strcpy(to, "\n") + 1;
    }
    path = test_file("a", text);
    free(text);
    spec = data_spec(FLEET_MULTISLOT, &slot, 1, &path, 1);
    spec.log = &log_to;
    (void)read_cached(spec);
    CHECK_OK(fl_cache_file_open(&c, path, fl_cache_key(&spec), &goes_on));
    CHECK_INT(c.rows, N);
    CHECK_INT(c.n_block, 4);
    fl_cache_file_close(&c);
}

TEST(packed_files_have_caches_too)
{
    const char *text = "1 1 3 1 2 3 1 4 0 0 0\n";
    const char *path = data_gz("a.gz", text, strlen(text));
    fl_stream_spec spec = spec_of(&path, 1);

    same(&spec, true);
}

/* --- new ones that a dead process has left -------------------------------- */

static bool is_there(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0;
}

TEST(what_a_killed_process_has_left_goes_and_what_one_writes_stays)
{
    const char *path = write_text("a", 1, 20);
    const char *dead = test_file(".a.fleetcache.0123456789abcdef.new", "x");
    const char *other = test_file(".a.fleetcache.0123456789abcdeX.new", "x");
    const char *alive = test_file(".a.fleetcache.00000000000000ff.new", "x");
    const int fd = open(alive, O_RDONLY);
    fl_stream_spec spec = spec_of(&path, 1);
    int lock;

    CHECK_OK(fl_cache_lock(fd, &lock));
    CHECK(lock >= 0);
    same(&spec, true);
    CHECK(!is_there(dead));
    CHECK(is_there(other) && is_there(alive));
    close(fd); /* the lock is another descriptor's */
    fl_cache_remove_stale(test_folder(), ".a.fleetcache.", ".new");
    CHECK(is_there(alive));
    close(lock);
    fl_cache_remove_stale(test_folder(), ".a.fleetcache.", ".new");
    CHECK(!is_there(alive));
}

/* Else its size would begin at 0 again. */
TEST(a_sample_of_4_gib_is_no_row_by_itself)
{
    fl_field field = {.dim = (int64_t)1 << 30};
    const fl_layout l = {.field = &field, .n_field = 1};
    const fl_cache_block b = {.number = 7};
    uint32_t size;

    CHECK_FAILS(fl_cache_row_size(&b, 0, &l, &size), FLEET_EUNSUPPORTED,
                "line 7: a sample of 4294967296 bytes");
    field.dim--;
    CHECK_OK(fl_cache_row_size(&b, 0, &l, &size));
    CHECK(size == UINT32_MAX - 3);
}

/* --- another file --------------------------------------------------------- */

static void set_times(const char *path, const struct stat *st)
{
    CHECK(utimensat(AT_FDCWD, path,
                    (struct timespec[]){st->st_atim, st->st_mtim}, 0) == 0);
}

/* In place, with the size and the time that it had. */
TEST(a_file_that_was_changed_is_read_anew)
{
    const char *path = test_file("a", "1 1 3 1 2 3 1 4 0 0 0\n");
    fl_stream_spec spec = spec_of(&path, 1);
    struct stat st;

    same(&spec, true);
    for (int i = 0; i < 3; i++) {
        const int fd = open(path, O_WRONLY);

        CHECK(stat(path, &st) == 0);
        CHECK(pwrite(fd, &"023"[i], 1, 2) == 1);
        close(fd);
        set_times(path, &st);
        same(&spec, true);
    }
    path = test_file("a", "1 1 3 1 2 3 1 4 0 0 0\n1 0 3 1 2 3 1 4 0 0 0\n");
    same(&spec, true);
}

/* A copy of both, or times alone: the bytes are the same. */
TEST(a_file_of_the_same_bytes_keeps_its_cache)
{
    const char *path = write_text("a", 3, 50), *copy = test_path("b");
    fl_stream_spec spec = spec_of(&path, 1);
    char command[1000], out[100];

    same(&spec, true);
    CHECK(utimensat(AT_FDCWD, path, NULL, 0) == 0);
    same(&spec, false);
    snprintf(command, sizeof command,
             "cp '%s' '%s'; cp '%s.fleetcache' "
             "'%s.fleetcache'",
             path, copy, path, copy);
    CHECK_INT(test_shell(command, out, sizeof out), 0);
    spec.files = &copy;
    same(&spec, false);
}

/* By its times alone: it has not been written just before. The cache of a link
 * is beside the link. */
TEST(a_file_that_has_lain_there_is_known_by_its_times)
{
    const char *source = getenv("FLEET_SOURCE"), *link = test_path("link.gz");
    const fleet_slot slot = {.name = "x",
                             .dtype = FLEET_INT64,
                             .columns = (const char *const[]){"0"},
                             .n_column = 1};
    fl_stream_spec spec = data_spec(FLEET_CSV, &slot, 1, &link, 1);
    fl_cache_file c;
    char path[1000];

    snprintf(path, sizeof path,
             "%s/samples/data/adult/adult.test.first13025.gz",
             source && *source ? source : ".");
    CHECK(symlink(path, link) == 0);
    spec.log = &log_to;
    same(&spec, true);
    CHECK_OK(fl_cache_file_open(&c, link, fl_cache_key(&spec), &goes_on));
    CHECK_INT(c.rows, 13026); /* with a header */
    fl_cache_file_close(&c);
    unlink(link);
    data_gz("link.gz", "a\n", 2); /* another one in its place */
    same(&spec, true);
}

TEST(other_options_have_other_caches)
{
    const fleet_slot other[] = {
        {.name = "y", .columns = (const char *const[]){"0"}, .n_column = 1},
        {.name = "x",
         .dtype = FLEET_INT64,
         .columns = (const char *const[]){"1"},
         .n_column = 1}};
    const fleet_slot equal[] = {
        other[0],
        {.name = "x",
         .dtype = FLEET_INT64,
         .columns = (const char *const[]){"1"},
         .n_column = 1,
         .transforms = (const fleet_transform[]){FLEET_EQUALS},
         .n_transform = 1,
         .equals = (const char *const[]){"a"},
         .n_equals = 1}};
    const char *path = test_file("a", "1,a\n2,b\n3,?\n");
    fl_stream_spec spec = data_spec(FLEET_CSV, other, 2, &path, 1);
    const uint64_t seeds[] = {5, 6};

    spec.log = &log_to;
    same(&spec, true);
    spec.seeds = seeds;
    same(&spec, true);
    spec.missing = "?";
    same(&spec, true);
    spec.skip_lines = 1;
    same(&spec, true);
    spec.slots = equal;
    same(&spec, true);
    spec.comment = '2';
    same(&spec, true);
    spec.batch_size = 1; /* which no cache is made for */
    same(&spec, false);
}

TEST(numbers_that_are_standardized_are_of_their_means)
{
    const fleet_transform standardize = FLEET_STANDARDIZE;
    const char *column = "0", *path = test_file("a", "1\n2\n4\n");
    const fleet_slot slot = {.name = "x",
                             .columns = &column,
                             .n_column = 1,
                             .transforms = &standardize,
                             .n_transform = 1};
    fl_stream_spec spec = data_spec(FLEET_CSV, &slot, 1, &path, 1);
    double mean = 2, deviation = 1;
    const fl_statistics s = {1, &mean, &deviation};

    spec.log = &log_to;
    spec.statistics = &s;
    same(&spec, true);
    deviation = 3;
    same(&spec, true);
}

/* --- what is wrong -------------------------------------------------------- */

static char *cache_of(const char *path)
{
    static char cache[2000];

    snprintf(cache, sizeof cache, "%s.fleetcache", path);
    return cache;
}

/* Each bit in turn of a small one: the same rows, or an error that names it,
 * after which the text is read. */
TEST(a_damaged_cache_is_never_believed)
{
    const char *path = write_text("a", 4, 3);
    fl_stream_spec spec = spec_of(&path, 1);
    data_dump text = data_read(&spec), d;
    size_t size, damaged = 0;
    char *data;

    d = read_cached(spec);
    CHECK_OK(fl_file_read(cache_of(path), &data, &size));
    for (size_t bit = 0; bit < 8 * size; bit += 5) {
        test_file_bytes("a.fleetcache", data, size);
        test_flip_bit(cache_of(path), bit);
        forget_caches();
        d = read_cached(spec);
        if (d.status == FLEET_ECORRUPT) {
            CHECK_CONTAINS(d.error, "a.fleetcache: block 1 of 1 is damaged");
            CHECK(!fl_file_exists(cache_of(path)));
            damaged++;
            d = read_cached(spec);
            CHECK(was_made());
        }
        CHECK(alike(&d, &text));
    }
    CHECK(damaged > size);
    fl_free(data);
}

TEST(a_cache_that_is_cut_off_is_made_again)
{
    const char *path = write_text("a", 5, 3);
    fl_stream_spec spec = spec_of(&path, 1);
    size_t size;
    char *data;

    same(&spec, true);
    CHECK_OK(fl_file_read(cache_of(path), &data, &size));
    for (size_t n = 0; n < size; n += n < 200 ? 1 : 31) {
        test_file_bytes("a.fleetcache", data, n);
        same(&spec, true);
    }
    fl_free(data);
}

static int writes;
static int fail_at;

static ssize_t write_until(int fd, const void *data, size_t size)
{
    if (++writes < fail_at)
        return fl_disk_system.write(fd, data, size > 100 ? 100 : size);
    errno = ENOSPC;
    return -1;
}

static int count_names(void)
{
    char command[1000], out[100];

    snprintf(command, sizeof command, "ls -A '%s' | wc -l", test_folder());
    CHECK_INT(test_shell(command, out, sizeof out), 0);
    return atoi(out);
}

TEST(a_full_disk_costs_the_cache_alone)
{
    const char *path = write_text("a", 6, 3);
    fl_stream_spec spec = spec_of(&path, 1);
    data_dump text = data_read(&spec), d;
    fl_disk disk = fl_disk_system;

    disk.write = write_until;
    for (fail_at = 1; fail_at < 100; fail_at++) {
        state.is_off = false;
        writes = 0;
        fl_disk_use(&disk);
        d = read_cached(spec);
        fl_disk_use(NULL);
        CHECK(alike(&d, &text));
        if (!strstr(said, "a has no cache, and is read as text"))
            break;
        CHECK_CONTAINS(said, "No space left on device");
        CHECK_INT(count_names(), 1);
        CHECK(state.is_off);
    }
    CHECK(fail_at > 5 && fail_at < 100);
    CHECK_INT(count_names(), 2);
}

/* Files that have lain there, so that a cache takes one descriptor at a time
 * and may leave none for a text. */
TEST(files_without_descriptors_for_their_caches_are_read_as_text)
{
    const char *source = getenv("FLEET_SOURCE"), *link = test_path("link");
    const fleet_slot slot = {.name = "x",
                             .dtype = FLEET_INT64,
                             .columns = (const char *const[]){"0"},
                             .n_column = 1};
    const char *files[100];
    fl_stream_spec spec = data_spec(FLEET_CSV, &slot, 1, files, 100);
    struct rlimit few, all;
    data_dump text, d;
    char path[1000];

    snprintf(path, sizeof path, "%s/NOTICE", source && *source ? source : ".");
    CHECK(symlink(path, link) == 0);
    for (int i = 0; i < 100; i++)
        files[i] = link;
    spec.log = &log_to;
    text = data_read(&spec);
    CHECK_STATUS(text.status, FLEET_EEND);
    CHECK(getrlimit(RLIMIT_NOFILE, &all) == 0);
    few = all;
    for (few.rlim_cur = 60; few.rlim_cur < 64; few.rlim_cur++) {
        state.is_off = false;
        CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
        d = read_cached(spec);
        CHECK(setrlimit(RLIMIT_NOFILE, &all) == 0);
        CHECK_CONTAINS(said, "is read as text");
        CHECK_STATUS(d.status, FLEET_EEND);
        CHECK(alike(&d, &text));
    }
}

TEST(what_is_wrong_with_the_file_is_said_as_of_text)
{
    const char *path = test_file("a", "1 1 3 1 2 3 1 4 0 0 0\n1 1 x\n");
    fl_stream_spec spec = spec_of(&path, 1);
    data_dump text = data_read(&spec), d = read_cached(spec);

    CHECK_CONTAINS(text.error, "a:2: ");
    CHECK(alike(&d, &text));
    CHECK_TEXT(d.error, text.error);
    CHECK_CONTAINS(said, "is read as text");
    state.is_off = false;
    spec.max_bad_lines = 1;
    d = read_cached(spec);
    CHECK_STATUS(d.status, FLEET_EEND);
    CHECK_INT(d.rows, 1);
    CHECK_INT(count_names(), 1);
}

/* By the number of its line in the text. */
TEST(a_value_out_of_bounds_is_named_by_its_line)
{
    const fl_slot_bounds bounds[6] = {{0}, {0}, {.ids_below = 100}};
    const char *path =
        test_file("a", "\n1 1 3 1 2 3 1 4 0 0 0\n\n1 1 3 1 2 3 1 400 0 0 0\n");
    fl_stream_spec spec = spec_of(&path, 1);

    same(&spec, true);
    spec.bounds = bounds;
    spec.cache = &state;
    DATA_FAILS(&spec, FLEET_EFORMAT, "a:4: slot \"a\"", "got \"400\"");
    spec.shuffle = 5;
    DATA_FAILS(&spec, FLEET_EFORMAT, "a:4: slot \"a\"", "got \"400\"");
}

TEST(a_cache_is_no_file_of_the_glob_that_found_its_text)
{
    const char *path = write_text("part-0", 7, 3);
    char glob[1000];
    const char *globs[] = {glob};
    fl_stream_spec spec = spec_of(&path, 1);
    fl_paths p;

    same(&spec, true);
    snprintf(glob, sizeof glob, "%s*", test_path("part-"));
    CHECK_OK(fl_paths_glob(&p, globs, 1));
    CHECK_INT(p.n, 1);
    fl_paths_done(&p);
    globs[0] = cache_of(path);
    CHECK_FAILS(fl_paths_glob(&p, globs, 1), FLEET_ENOENT, "no file matches");
}

TEST(caches_are_refused_where_they_would_be_stale)
{
    const char *path = write_text("a", 8, 3);
    fl_stream_spec spec = spec_of(&path, 1);

    spec.cache = &state;
    spec.pipe_command = "cat -n";
    DATA_FAILS(&spec, FLEET_ECONFIG, "cache: not for what goes through a");
}

static fleet_status leave_at_once(void *job)
{
    (void)job;
    return fl_fail(FLEET_ESTATE, "the job is over");
}

/* Whether it was made by then is a matter of time; nothing else is left. */
TEST(a_job_that_is_over_does_not_wait_for_a_cache)
{
    const char *path = write_text("a", 11, 10 * LINES);
    fl_stream_spec spec = spec_of(&path, 1);
    fl_stream *s = NULL;
    fleet_status status;

    spec.cache = &state;
    spec.job_status = leave_at_once;
    status = fl_stream_open(&s, &spec);
    fl_stream_close(s);
    CHECK(status == FLEET_OK || status == FLEET_ESTATE);
    CHECK_INT(count_names(), 1 + fl_file_exists(cache_of(path)));
    CHECK(!state.is_off);
}

TEST(a_stream_with_caches_can_be_closed_at_any_time)
{
    const char *path = write_text("a", 9, LINES);
    fl_stream_spec spec = spec_of(&path, 1);
    fl_stream *s;
    fl_batch *b;

    for (int n = 0; n < 20; n++) {
        if (n % 2 == 0)
            unlink(cache_of(path));
        spec.cache = &state;
        spec.n_thread = 1 + n % 3;
        CHECK_OK(fl_stream_open(&s, &spec));
        for (int i = 0; i < n; i++)
            if (fl_stream_next(s, &b) == FLEET_OK)
                fl_stream_release(s, b);
        fl_stream_close(s);
    }
    CHECK_INT(count_names(), 2);
}

TEST(without_memory_a_pass_ends_with_an_error)
{
    const char *path = write_text("a", 10, 20);
    fl_stream_spec spec = spec_of(&path, 1);
    fleet_status status;
    int n = 0, m = 0;

    spec.batch_size = 7;
    spec.cache = &state;
    do {
        fl_stream *s = NULL;
        fl_batch *b;

        if (m++ % 2 == 0)
            unlink(cache_of(path));
        forget_caches();
        fl_memory_fail_at(++n, false);
        status = fl_stream_open(&s, &spec);
        while (status == FLEET_OK &&
               (status = fl_stream_next(s, &b)) == FLEET_OK)
            fl_stream_release(s, b);
        fl_memory_fail_at(0, false);
        fl_stream_close(s);
        CHECK(status == FLEET_ENOMEM || status == FLEET_EEND);
        n -= m % 2; /* each with a cache, and without */
    } while (status == FLEET_ENOMEM || n < 60);
}
