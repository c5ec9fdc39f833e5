/* folders.c - a job's folders, named by one random word. */
#define _GNU_SOURCE
#include "folders.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

/* Shared memory belongs into memory; a system without /dev/shm has it in
 * /tmp. */
static const char sockets_in[] = "/tmp/fleetrun-";
static const char *const shared_in[] = {"/dev/shm/fleetrun-",
                                        "/tmp/fleetrun-mpi-"};
enum { N_SHARED = sizeof shared_in / sizeof *shared_in };
static const char journals_in[] = "/fleetrun-journals-";

fleet_status run_folders_choose(char word[RUN_WORD_SIZE])
{
    unsigned char bytes[RUN_WORD_SIZE / 2];

    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return fl_fail(FLEET_EIO, "no random numbers: %s", strerror(errno));
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(word + 2 * i, 3, "%02x", bytes[i]);
    return FLEET_OK;
}

static fleet_status make_private(const char *path)
{
    if (mkdir(path, 0700) == 0)
        return FLEET_OK;
    return fl_fail(FLEET_EIO, "cannot make the folder %s: %s", path,
                   strerror(errno));
}

static fleet_status make_folder(const char *in, const char *word,
                                char path[RUN_FOLDER_SIZE])
{
    snprintf(path, RUN_FOLDER_SIZE, "%s%s", in, word);
    return make_private(path);
}

fleet_status run_folders_make(const char *word, char path[RUN_FOLDER_SIZE])
{
    return make_folder(sockets_in, word, path);
}

fleet_status run_folders_make_shared(const char *word,
                                     char path[RUN_FOLDER_SIZE])
{
    fleet_status status = FLEET_EIO;

    for (int i = 0; status != FLEET_OK && i < N_SHARED; i++)
        status = make_folder(shared_in[i], word, path);
    return status;
}

fleet_status run_folders_make_journals(const char *word, const char *in,
                                       char *path, size_t size)
{
    if (snprintf(path, size, "%s%s%s", in, journals_in, word) >= (int)size)
        return fl_fail(FLEET_EIO, "the path of the journals is too long");
    return make_private(path);
}

fleet_status run_folders_make_deep(const char *flag, const char *what,
                                   const char *path, mode_t mode)
{
    char part[PATH_MAX];

    if (snprintf(part, sizeof part, "%s", path) >= (int)sizeof part - 32)
        return fl_fail(FLEET_EIO, "%s: the path is too long", flag);
    for (size_t n = strlen(part); n > 1 && part[n - 1] == '/'; n--)
        part[n - 1] = 0; /* or the last folder had no mode of its own */
    for (char *c = part + 1; *c; c++)
        if (*c == '/') {
            *c = 0;
            mkdir(part, 0777); /* if that fails, the next one does */
            *c = '/';
        }
    if (mkdir(part, mode) != 0 && errno != EEXIST)
        return fl_fail(FLEET_EIO, "cannot make the folder %s of %s: %s", path,
                       what, strerror(errno));
    return FLEET_OK;
}

static int remove_one(const char *path, const struct stat *st, int type,
                      struct FTW *where)
{
    (void)st, (void)type, (void)where;
    remove(path);
    return 0;
}

static void remove_all(const char *in, const char *what, const char *word)
{
    char path[PATH_MAX];

    if (snprintf(path, sizeof path, "%s%s%s", in, what, word) <
        (int)sizeof path)
        nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void run_folders_remove(const char *word, const char *journals_folder)
{
    if (!*word)
        return;
    remove_all("", sockets_in, word);
    for (int i = 0; i < N_SHARED; i++)
        remove_all("", shared_in[i], word);
    remove_all(journals_folder, journals_in, word);
}
