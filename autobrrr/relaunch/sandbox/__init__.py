"""What keeps a trial's files and processes apart from everything else. Imports no other stage of relaunch."""
