/* locality.c - the kernel's boot, namespaces, host and process, read from
 * /proc; folders for sockets of one machine. */
#define _GNU_SOURCE
#include "ps/locality.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"

static void read_line(const char *path, char *text, size_t size)
{
    FILE *f = fopen(path, "re");

    *text = 0;
    if (!f)
        return;
    if (fgets(text, (int)size, f))
        text[strcspn(text, "\n")] = 0;
    else
        *text = 0;
    fclose(f);
}

static unsigned long namespace_of(const char *path)
{
    struct stat s;

    return stat(path, &s) == 0 ? (unsigned long)s.st_ino : 0;
}

void fl_locality_text(char text[160])
{
    unsigned long net = namespace_of("/proc/self/ns/net");
    unsigned long mnt = namespace_of("/proc/self/ns/mnt");
    char boot[64];

    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    *text = 0;
    if (*boot && net && mnt)
        snprintf(text, 160, "%s/%lu/%lu", boot, net, mnt);
}

void fl_who_text(char text[96])
{
    char host[64] = "?";

    gethostname(host, sizeof host - 1);
    snprintf(text, 96, "%s:%ld", host, (long)getpid());
}

uint64_t fl_nonce(void)
{
    int64_t parts[3] = {fl_now_ns(), getpid(), 0};

    if (getrandom(&parts[2], sizeof parts[2], GRND_NONBLOCK) < 0)
        parts[2] = (int64_t)(intptr_t)&parts;
    return fl_hash(parts, sizeof parts, 0);
}

static bool is_private(const char *path)
{
    struct stat s;

    return lstat(path, &s) == 0 && S_ISDIR(s.st_mode) &&
           s.st_uid == geteuid() && (s.st_mode & 077) == 0;
}

fleet_status fl_ipc_folder_open(fl_ipc_folder *f)
{
    const char *given = getenv("FLEET_IPC_FOLDER");

    *f = (fl_ipc_folder){0};
    if (given && *given) {
        if (strlen(given) >= sizeof f->path || !is_private(given))
            return fl_fail(FLEET_EINVAL,
                           "FLEET_IPC_FOLDER is \"%.200s\": expected a folder "
                           "of this user alone (mode 0700), its path at most "
                           "%zu bytes",
                           given, sizeof f->path - 1);
        snprintf(f->path, sizeof f->path, "%s", given);
        return FLEET_OK;
    }
    f->ours = true;
    snprintf(f->path, sizeof f->path, "/tmp/libfleet-XXXXXX");
    if (mkdtemp(f->path))
        return FLEET_OK; /* mkdtemp() makes it 0700 */
    f->path[0] = 0;
    return fl_fail(FLEET_EIO, "cannot make a folder for sockets in /tmp: %s",
                   strerror(errno));
}

void fl_ipc_folder_close(fl_ipc_folder *f)
{
    DIR *d = f->ours && *f->path ? opendir(f->path) : NULL;
    struct dirent *e;

    while (d && (e = readdir(d)) != NULL)
        if (e->d_name[0] != '.')
            unlinkat(dirfd(d), e->d_name, 0);
    if (d)
        closedir(d);
    if (f->ours && *f->path)
        rmdir(f->path);
    *f = (fl_ipc_folder){0};
}
