"""Recipes: what was proven on one job, as data in TOML that the next run applies.

A recipe names remedies of the registry and their options, flags of the script, and what was
measured. It holds no code.
"""

from autobrrr.recipe.recipe_contents import Match, Measured, Recipe
from autobrrr.recipe.recipe_file import dump, from_tuning, load, match_of, measured_on, parse, shipped
from autobrrr.recipe.recipe_fit import Here, environment, here, live_remedies, misfits, plan, unavailable
from autobrrr.recipe.script_flags import (
    NO_PLACE,
    ignores_environment,
    misplaced,
    overruled,
    own_words,
    program_of,
    script_of,
    unknown_flags,
    unreached,
    with_flags,
)
