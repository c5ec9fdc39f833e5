/* replay.c - runs a fuzz target without libFuzzer: on each file that is named,
 * and on each file in the folders that are named. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int n_run;

static void run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t size = 0, n;

    if (!f) {
        perror(path);
        exit(1);
    }
    do { /* a block of exactly the right size: reading past it is caught */
        uint8_t *more = realloc(data, size + 4096);

        if (!more)
            abort();
        data = more;
        n = fread(data + size, 1, 4096, f);
        size += n;
    } while (n > 0);
    fclose(f);
    data = realloc(data, size ? size : 1);
    LLVMFuzzerTestOneInput(data, size);
    free(data);
    n_run++;
}

static void run(const char *path)
{
    struct stat st;
    struct dirent *e;
    DIR *dir;

    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        run_file(path);
        return;
    }
    dir = opendir(path);
    if (!dir) {
        perror(path);
        exit(1);
    }
    while ((e = readdir(dir)) != NULL) {
        char below[4096];

        if (e->d_name[0] == '.')
            continue;
        snprintf(below, sizeof below, "%s/%s", path, e->d_name);
        run(below);
    }
    closedir(dir);
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        run(argv[i]);
    printf("%s: %d inputs\n", argv[0], n_run);
    return n_run == 0;
}
