"""The drill: thousands of seeded attacks on the commands, each of which must end with the right answer or a sentence.

    make drill                           # the whole: more than 10,000 cases, more than 1,000 of them kills
    make drill SEED=7 CASES=500          # some of them, drawn by another seed
    make drill ONLY=kills/train/17       # one case, or all whose names begin so

`engine` runs a command in a forked process under limits; `files` traces its file operations and makes them fail;
`world` has the runs, checkpoints and data files that are attacked; `attacks` has a module for each kind of attack;
`report` counts. docs/drill.md says how to read the report and how to add an attack.
"""
