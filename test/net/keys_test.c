/* keys_test.c - a folder of keys: what is made, who may read it, and what is
 * refused by name. */
#define _GNU_SOURCE
#define SUITE keys
#include "net/keys.h"
#include "test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *make_folder(const char *name)
{
    const char *folder = test_path(name);

    CHECK_OK(fl_keys_make(folder, 2, 3));
    return folder;
}

static mode_t mode_of(const char *folder, const char *name)
{
    char path[400];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    CHECK(stat(path, &st) == 0);
    return st.st_mode & 07777;
}

static void write_over(const char *folder, const char *name, const char *text)
{
    char path[400];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "w");
    CHECK(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void refuse(const char *folder, fleet_status code, const char *words)
{
    fl_keys *k;

    CHECK_FAILS(fl_keys_read(&k, folder, false, 1), code, words);
    CHECK(!k);
}

TEST(each_process_reads_everybodys_public_keys_and_its_own_secret)
{
    const char *folder = make_folder("keys");
    uint8_t bytes[FL_KEY_BYTES] = {0};
    fl_keys *k;

    CHECK_INT(mode_of(folder, "."), 0700);
    CHECK_INT(mode_of(folder, "server-1.secret"), 0600);
    CHECK_INT(mode_of(folder, "worker-2.secret"), 0600);
    CHECK_OK(fl_keys_read(&k, folder, false, 2));
    CHECK_INT(k->n[FL_ROLE_SERVER], 2);
    CHECK_INT(k->n[FL_ROLE_WORKER], 3);
    CHECK_TEXT(k->own, k->known[FL_ROLE_WORKER][2]);
    CHECK(strcmp(k->known[FL_ROLE_WORKER][0], k->known[FL_ROLE_WORKER][1]) !=
          0);
    CHECK_INT(fl_keys_find(k, FL_ROLE_WORKER, bytes), -1);
    fl_keys_destroy(k);
    CHECK_OK(fl_keys_read(&k, folder, true, 1));
    CHECK_TEXT(k->own, k->known[FL_ROLE_SERVER][1]);
    fl_keys_destroy(k);
    fl_keys_destroy(NULL);
}

TEST(a_node_needs_no_secret_of_another_process)
{
    const char *folder = make_folder("keys");
    fl_keys *k;

    CHECK(unlink(test_path("keys/server-0.secret")) == 0);
    CHECK(unlink(test_path("keys/worker-0.secret")) == 0);
    CHECK_OK(fl_keys_read(&k, folder, false, 1));
    fl_keys_destroy(k);
}

TEST(a_folder_with_something_in_it_is_left_alone)
{
    const char *folder = make_folder("keys");
    fl_keys *before, *after;

    CHECK_OK(fl_keys_read(&before, folder, true, 0));
    CHECK_FAILS(fl_keys_make(folder, 2, 3), FLEET_EEXIST, "is not empty");
    CHECK_OK(fl_keys_read(&after, folder, true, 0));
    CHECK_TEXT(after->secret, before->secret);
    fl_keys_destroy(before);
    fl_keys_destroy(after);
    CHECK(mkdir(test_path("empty"), 0755) == 0);
    CHECK_OK(fl_keys_make(test_path("empty"), 1, 1));
    CHECK_INT(mode_of(test_path("empty"), "."), 0700);
    CHECK_FAILS(fl_keys_make("/no/such/place", 1, 1), FLEET_EIO,
                "cannot make the folder /no/such/place");
}

TEST(a_secret_that_others_may_read_is_refused)
{
    const char *folder = make_folder("keys");

    CHECK(chmod(test_path("keys/worker-1.secret"), 0640) == 0);
    refuse(folder, FLEET_EINVAL,
           "keys/worker-1.secret (mode 0640): expected mode 0600");
    CHECK(chmod(test_path("keys/worker-1.secret"), 0604) == 0);
    refuse(folder, FLEET_EINVAL, "others may read the secret key");
}

TEST(a_key_that_is_missing_is_named)
{
    const char *folder = make_folder("keys");
    fl_keys *k;

    refuse("/no/such/folder", FLEET_ENOENT,
           "cannot open the folder of keys /no/such/folder");
    CHECK_FAILS(fl_keys_read(&k, folder, false, 7), FLEET_ENOENT,
                "keys/worker-7.secret");
    CHECK(unlink(test_path("keys/worker-1.secret")) == 0);
    refuse(folder, FLEET_ENOENT, "keys/worker-1.secret");
    write_over(folder, "worker-1.secret", "short\n");
    CHECK(chmod(test_path("keys/worker-1.secret"), 0600) == 0);
    refuse(folder, FLEET_EFORMAT,
           "worker-1.secret: not a key of 40 characters");
    CHECK(unlink(test_path("keys/public")) == 0);
    refuse(folder, FLEET_ENOENT, "keys/public");
}

TEST(a_secret_of_another_job_does_not_fit)
{
    const char *folder = make_folder("keys");

    make_folder("other");
    CHECK(rename(test_path("other/worker-1.secret"),
                 test_path("keys/worker-1.secret")) == 0);
    refuse(folder, FLEET_EINVAL,
           "worker-1.secret does not fit the public key of worker 1");
}

TEST(a_damaged_list_is_refused_by_its_line)
{
    static const struct {
        const char *text, *words;
    } bad[] = {
        {"", "its first line does not begin with \"libfleet keys 1 \""},
        {"libfleet keys 2 00\n", "its first line"},
        {"libfleet keys 1 00\nserver 0 abc\n", "public, line 2: expected"},
        {"libfleet keys 1 00\nclient 0 "
         "gjr^+Obp^XTwFevdy!YeF<gLyvIXOtgsMN^ip8Fv\n",
         "public, line 2: expected \"server\", \"worker\", \"subscriber\" "
         "or"},
        {"libfleet keys 1 00\nworker 4096 "
         "gjr^+Obp^XTwFevdy!YeF<gLyvIXOtgsMN^ip8Fv\n",
         "public, line 2"},
        {"libfleet keys 1 00\nworker 0 "
         "gjr^+Obp^XTwFevdy!YeF<gLyvIXOtgsMN^ip8F\n",
         "public, line 2"},
        {"libfleet keys 1 00\nworker 0 "
         "gjr^+Obp^XTwFevdy!YeF<gLyvIXOtgsMN^ip8Fv\n",
         "public has no key of worker 1"}};
    const char *folder = make_folder("keys");

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_over(folder, "public", bad[i].text);
        refuse(folder, i == 6 ? FLEET_ENOENT : FLEET_EFORMAT, bad[i].words);
    }
}

/* --- a libzmq without CURVE ----------------------------------------------- */

/* Stands before libzmq's. */
static bool without_curve;
int zmq_has(const char *capability);
int zmq_has(const char *capability)
{
    int (*real)(const char *);

    *(void **)&real = dlsym(RTLD_NEXT, "zmq_has");
    return real(capability) &&
           !(without_curve && strcmp(capability, "curve") == 0);
}

TEST(a_libzmq_without_CURVE_is_named)
{
    const char *folder = make_folder("keys");
    fl_keys *k;

    without_curve = true;
    CHECK_FAILS(fl_keys_make(test_path("more"), 1, 1), FLEET_EUNSUPPORTED,
                "this libzmq was built without CURVE (libsodium)");
    CHECK(access(test_path("more"), F_OK) != 0);
    CHECK_FAILS(fl_keys_read(&k, folder, true, 0), FLEET_EUNSUPPORTED,
                "FLEET_INSECURE=1 and \"fleetrun --insecure\" do without keys");
}
