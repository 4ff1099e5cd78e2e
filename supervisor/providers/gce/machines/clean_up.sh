#!/bin/sh
# The clean-up of a container that becomes a base: personal files, keys, histories, checked-out repositories and caches.
#
# It runs as the last command in the container, in the image's /bin/sh, before the container is kept as an image: what a
# later layer deletes would still lie in an earlier one. It deletes below the root of a rented machine's container only:
# SPOT_MACHINE_DIR shows it, and on any other computer it refuses. Its last act is the file that the machine waits for.
set -u
case ${SPOT_MACHINE_DIR:-} in
    */var/lib/spot/machine) ROOT=${SPOT_MACHINE_DIR%/var/lib/spot/machine} ;;
    *) echo "clean-up: this is no rented machine: nothing is deleted" >&2 && exit 1 ;;
esac
if [ -z "$ROOT" ] && ! [ -e /.dockerenv ]; then
    echo "clean-up: this is no container: nothing is deleted" >&2
    exit 1
fi
command -v find >/dev/null || { echo "clean-up: the image has no find: install findutils in it" >&2 && exit 1; }

homes() { # every home folder; $HOME too, where it lies below the root
    for home in "$ROOT/root" "$ROOT"/home/*; do [ ! -d "$home" ] || printf '%s\n' "$home"; done
    case ${HOME:-} in "$ROOT"/?*) [ ! -d "$HOME" ] || printf '%s\n' "$HOME" ;; esac
}

homes | sort -u | while IFS= read -r home; do
    for name in .ssh .gnupg .aws .azure .boto .gsutil .config/gcloud .config/gh .config/git .config/wandb .docker .kube \
        .netrc .pgpass .my.cnf .git-credentials .gitconfig .pypirc .condarc .npmrc .kaggle .huggingface \
        .cache/huggingface/token .cache/huggingface/stored_tokens .cache/pip .cache/uv .local/share/keyrings \
        .bash_history .sh_history .zsh_history .python_history .node_repl_history .psql_history .sqlite_history \
        .ipython/profile_default/history.sqlite .jupyter .viminfo .lesshst .wget-hsts .sudo_as_admin_successful; do
        rm -rf "${home:?}/$name"
    done
done
# What the seed of every leak is: environment files and repositories, wherever the script has put them.
find "$ROOT/" -xdev \( -path "$ROOT/proc" -o -path "$ROOT/sys" -o -path "$ROOT/dev" -o -path "$ROOT/var/lib/spot" \) \
    -prune -o \( -name .git -o -name .env -o -name '.env.*' \) -prune -exec rm -rf {} + 2>/dev/null
rm -rf "$ROOT"/tmp/* "$ROOT"/var/tmp/spot-* "$ROOT"/var/log/*.log "$ROOT"/var/cache/apt/archives/*.deb
rm -f "$ROOT"/etc/ssh/ssh_host_*
# Whoever the training runs as may read what was put outside of the home folders.
for folder in "$ROOT/opt" "$ROOT/srv" "$ROOT/workspace" "$ROOT/data"; do
    [ ! -d "$folder" ] || chmod -R a+rX "$folder" || exit 1
done
left=$(homes | sort -u | while IFS= read -r home; do
    find "$home" -xdev -type f -size -64k -exec grep -lI 'PRIVATE KEY-----' {} + 2>/dev/null
done | head -n 5)
if [ -n "$left" ]; then
    echo "clean-up: these private keys are left: $left" >&2
    exit 1
fi
echo "clean-up: done"
: >"$SPOT_MACHINE_DIR/prepared"
