/* keys.c - pairs of keys are drawn, written into a folder, read and checked. */
#define _GNU_SOURCE
#include "net/keys.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zmq.h>

#include "base/memory.h"
#include "base/text.h"

enum { MOST_NUMBER = 4096, NAME_SIZE = 40, LINE_SIZE = 120 };

static const char first_line[] = "libfleet keys 1 ";

static fleet_status need_curve(void)
{
    if (zmq_has("curve"))
        return FLEET_OK;
    return fl_fail(
        FLEET_EUNSUPPORTED,
        "this libzmq was built without CURVE (libsodium), which keys "
        "need; FLEET_INSECURE=1 and \"fleetrun --insecure\" do "
        "without keys");
}

static const char *const role_name[FL_N_ROLE] = {"server", "worker",
                                                 "subscriber", "control"};

static void secret_name(char name[NAME_SIZE], fl_key_role role, int index)
{
    snprintf(name, NAME_SIZE, "%s-%d.secret", role_name[role], index);
}

/* --- making --------------------------------------------------------------- */

/* A folder that is new, or as if it were. */
static fleet_status check_empty(const char *path, int folder)
{
    int copy = fcntl(folder, F_DUPFD_CLOEXEC, 3);
    DIR *all = copy < 0 ? NULL : fdopendir(copy);
    int n = 0;

    if (!all) {
        if (copy >= 0)
            close(copy);
        return fl_fail(FLEET_EIO, "cannot read the folder %s: %s", path,
                       strerror(errno));
    }
    for (struct dirent *e = readdir(all); e; e = readdir(all))
        n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
    closedir(all);
    if (n == 0)
        return FLEET_OK;
    return fl_fail(FLEET_EEXIST,
                   "%s is not empty: keys are made in a new folder", path);
}

static fleet_status open_folder(const char *path, int *folder)
{
    fleet_status status = FLEET_OK;
    bool made = mkdir(path, 0700) == 0;

    if (!made && errno != EEXIST)
        return fl_fail(FLEET_EIO, "cannot make the folder %s: %s", path,
                       strerror(errno));
    *folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*folder < 0)
        return fl_fail(FLEET_EIO, "cannot open the folder %s: %s", path,
                       strerror(errno));
    if (!made)
        status = check_empty(path, *folder);
    if (status == FLEET_OK && fchmod(*folder, 0700) != 0)
        status = fl_fail(FLEET_EIO, "%s: cannot make it this user's alone: %s",
                         path, strerror(errno));
    if (status != FLEET_OK)
        close(*folder);
    return status;
}

static fleet_status write_file(int folder, const char *name, mode_t mode,
                               const char *text)
{
    int fd = openat(folder, name,
                    O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
    size_t size = strlen(text);
    bool whole = fd >= 0 && write(fd, text, size) == (ssize_t)size;
    int e = errno;

    if (fd >= 0)
        whole = close(fd) == 0 && whole;
    if (whole)
        return FLEET_OK;
    return fl_fail(FLEET_EIO, "cannot write the key file %s: %s", name,
                   strerror(e));
}

static fleet_status make_pair(int folder, fl_text *list, fl_key_role role,
                              int index)
{
    fl_key open, secret;
    char name[NAME_SIZE], text[FL_KEY_SIZE + 1];
    fleet_status status;

    if (zmq_curve_keypair(open, secret) != 0)
        return fl_fail(FLEET_EUNSUPPORTED, "cannot make a key: %s",
                       zmq_strerror(errno));
    secret_name(name, role, index);
    snprintf(text, sizeof text, "%s\n", secret);
    status = write_file(folder, name, 0600, text);
    explicit_bzero(secret, sizeof secret);
    explicit_bzero(text, sizeof text);
    fl_text_add(list, "%s %d %s\n", role_name[role], index, open);
    return status;
}

/* The list comes last: a folder without it is not whole. */
static fleet_status make_pairs(int folder, fl_text *list,
                               const int n[FL_N_ROLE])
{
    uint64_t id;

    if (getrandom(&id, sizeof id, 0) != sizeof id)
        return fl_fail(FLEET_EIO, "no random numbers: %s", strerror(errno));
    fl_text_add(list, "%s%016llx\n", first_line, (unsigned long long)id);
    for (int role = 0; role < FL_N_ROLE; role++)
        for (int i = 0; i < n[role]; i++)
            FL_TRY(make_pair(folder, list, (fl_key_role)role, i));
    FL_TRY(list->status);
    return write_file(folder, "public", 0644, fl_text_chars(list));
}

static void remove_pairs(int folder, const int n[FL_N_ROLE])
{
    char name[NAME_SIZE];

    for (int role = 0; role < FL_N_ROLE; role++)
        for (int i = 0; i < n[role]; i++) {
            secret_name(name, (fl_key_role)role, i);
            unlinkat(folder, name, 0);
        }
    unlinkat(folder, "public", 0);
}

fleet_status fl_keys_make(const char *path, int n_server, int n_worker)
{
    return fl_keys_make_all(
        path, (const int[FL_N_ROLE]){n_server, n_worker, 0, n_server > 0});
}

fleet_status fl_keys_make_all(const char *path, const int n[FL_N_ROLE])
{
    fl_text list = {0};
    fleet_status status;
    int folder = -1;

    FL_TRY(need_curve());
    FL_TRY(open_folder(path, &folder));
    status = make_pairs(folder, &list, n);
    if (status != FLEET_OK)
        remove_pairs(folder, n);
    fl_text_done(&list);
    close(folder);
    return status;
}

/* --- reading -------------------------------------------------------------- */

static bool is_key(const char *text)
{
    uint8_t bytes[FL_KEY_BYTES];

    return strlen(text) == FL_KEY_SIZE - 1 && zmq_z85_decode(bytes, text);
}

static fleet_status add_key(fl_key **list, int *n, int index, const char *key)
{
    size_t capacity = (size_t)*n;

    if (index >= *n) {
        FL_TRY(fl_grow(list, &capacity, (size_t)index + 1, sizeof **list));
        memset(*list + *n, 0, (size_t)(index + 1 - *n) * sizeof **list);
        *n = index + 1;
    }
    snprintf((*list)[index], FL_KEY_SIZE, "%s", key);
    return FLEET_OK;
}

static fleet_status read_line(fl_keys *k, const char *path, int number,
                              const char *line)
{
    char word[12], key[FL_KEY_SIZE + 1], more;
    int index, role = 0;
    bool whole = sscanf(line, "%11s %d %41s %c", word, &index, key, &more) == 3;

    while (whole && role < FL_N_ROLE && strcmp(word, role_name[role]) != 0)
        role++;
    if (!whole || role == FL_N_ROLE || index < 0 || index >= MOST_NUMBER ||
        !is_key(key))
        return fl_fail(
            FLEET_EFORMAT,
            "%s/public, line %d: expected \"server\", \"worker\", "
            "\"subscriber\" or \"control\", a number and a key of 40 "
            "characters",
            path, number);
    return add_key(&k->known[role], &k->n[role], index, key);
}

static FILE *open_file(int folder, const char *name)
{
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "r");

    if (fd >= 0 && !f)
        close(fd);
    return f;
}

static fleet_status cannot_open(const char *path, const char *name)
{
    return fl_fail(errno == ENOENT ? FLEET_ENOENT : FLEET_EIO,
                   "cannot open the key file %s/%s: %s", path, name,
                   strerror(errno));
}

static fleet_status read_public(fl_keys *k, const char *path, int folder)
{
    FILE *f = open_file(folder, "public");
    fleet_status status = FLEET_OK;
    char line[LINE_SIZE];
    int number = 1;

    if (!f)
        return cannot_open(path, "public");
    if (!fgets(line, sizeof line, f) ||
        strncmp(line, first_line, sizeof first_line - 1) != 0)
        status = fl_fail(FLEET_EFORMAT,
                         "%s/public: its first line does not begin with \"%s\"",
                         path, first_line);
    while (status == FLEET_OK && fgets(line, sizeof line, f))
        status = read_line(k, path, ++number, line);
    fclose(f);
    return status;
}

static fleet_status check_private(FILE *f, const char *path, const char *name)
{
    struct stat st;

    if (fstat(fileno(f), &st) == 0 && (st.st_mode & 077) == 0)
        return FLEET_OK;
    return fl_fail(FLEET_EINVAL,
                   "others may read the secret key %s/%s (mode %04o): expected "
                   "mode 0600",
                   path, name, (unsigned)(st.st_mode & 07777));
}

static fleet_status read_secret(fl_keys *k, const char *path, int folder,
                                const char *name)
{
    FILE *f = open_file(folder, name);
    char key[FL_KEY_SIZE + 1] = "";
    fleet_status status;

    if (!f)
        return cannot_open(path, name);
    status = check_private(f, path, name);
    setvbuf(f, NULL, _IONBF, 0); /* no copy of the key stays behind */
    if (status == FLEET_OK && (fscanf(f, "%41s", key) != 1 || !is_key(key)))
        status = fl_fail(FLEET_EFORMAT, "%s/%s: not a key of 40 characters",
                         path, name);
    snprintf(k->secret, sizeof k->secret, "%.40s", key);
    explicit_bzero(key, sizeof key);
    fclose(f);
    return status;
}

/* The secret's other half is what all other processes know it by. */
static fleet_status check_pair(fl_keys *k, const char *path, fl_key_role role,
                               int index, const char *name)
{
    fl_key *list = k->known[role];

    if (index >= k->n[role] || !*list[index])
        return fl_fail(FLEET_ENOENT, "%s/public has no key of %s %d", path,
                       role_name[role], index);
    if (zmq_curve_public(k->own, k->secret) != 0 ||
        strcmp(k->own, list[index]) != 0)
        return fl_fail(FLEET_EINVAL,
                       "%s/%s does not fit the public key of %s %d: is it of "
                       "another job?",
                       path, name, role_name[role], index);
    return FLEET_OK;
}

static fleet_status read_folder(fl_keys *k, const char *path, int folder,
                                fl_key_role role, int index)
{
    char name[NAME_SIZE];

    secret_name(name, role, index);
    FL_TRY(read_public(k, path, folder));
    FL_TRY(read_secret(k, path, folder, name));
    return check_pair(k, path, role, index, name);
}

fleet_status fl_keys_read(fl_keys **keys, const char *path, bool server,
                          int index)
{
    return fl_keys_read_as(keys, path, server ? FL_ROLE_SERVER : FL_ROLE_WORKER,
                           index);
}

fleet_status fl_keys_read_as(fl_keys **keys, const char *path, fl_key_role role,
                             int index)
{
    fleet_status status;
    int folder = -1;

    *keys = NULL;
    FL_TRY(need_curve());
    folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return fl_fail(errno == ENOENT ? FLEET_ENOENT : FLEET_EIO,
                       "cannot open the folder of keys %s: %s", path,
                       strerror(errno));
    status = FL_NEW(keys, sizeof **keys);
    if (status == FLEET_OK)
        status = read_folder(*keys, path, folder, role, index);
    close(folder);
    if (status != FLEET_OK) {
        fl_keys_destroy(*keys);
        *keys = NULL;
    }
    return status;
}

void fl_keys_destroy(fl_keys *k)
{
    if (!k)
        return;
    explicit_bzero(k->secret, sizeof k->secret);
    for (int role = 0; role < FL_N_ROLE; role++)
        fl_free(k->known[role]);
    fl_free(k);
}

void fl_keys_bytes(const fl_key key, uint8_t bytes[FL_KEY_BYTES])
{
    zmq_z85_decode(bytes, key);
}

int fl_keys_find(const fl_keys *k, fl_key_role role,
                 const uint8_t key[FL_KEY_BYTES])
{
    fl_key text;

    if (!zmq_z85_encode(text, key, FL_KEY_BYTES))
        return -1;
    for (int i = 0; i < k->n[role]; i++)
        if (strcmp(k->known[role][i], text) == 0)
            return i;
    return -1;
}
