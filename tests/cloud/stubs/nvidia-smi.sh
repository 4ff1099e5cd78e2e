#!/bin/bash
# As many cards as the file `cards` says. The real one makes the device nodes too, when it first reaches a card.
read -r cards <"$VM_FOLDER/stub/cards"
if ((cards == 0)); then
    echo "No devices were found"
    exit 6
fi
for ((card = 0; card < cards; card++)); do
    [ -z "${SPOT_ROOT:-}" ] || touch "$SPOT_ROOT/dev/nvidia$card" "$SPOT_ROOT"/dev/nvidia{ctl,-uvm,-uvm-tools}
    case ${1:-} in
        -L) echo "GPU $card: Tesla T4 (UUID: GPU-0000000$card)" ;;
        --query-gpu=*)
            answer=''
            IFS=, read -ra fields <<<"${1#--query-gpu=}"
            for field in "${fields[@]}"; do
                case $field in
                    index) answer+="$card, " ;;
                    uuid) answer+="GPU-0000000$card, " ;;
                    name) answer+="Tesla T4, " ;;
                    driver_version) answer+="535.183.01, " ;;
                    memory.total) answer+="15360, " ;;
                    memory.used | utilization.gpu) answer+="0, " ;;
                    *) answer+="[N/A], " ;;
                esac
            done
            echo "${answer%, }"
            ;;
        *) echo "| $card  Tesla T4 |" ;;
    esac
done
