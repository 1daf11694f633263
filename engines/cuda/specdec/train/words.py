# ruff: noqa: SIM905  (one word after another reads best)
"""Word lists for the generated data."""

from __future__ import annotations

NAMES = (
    "Anna Boris Clara David Elena Felix Greta Hugo Irene Jonas Klara Liam Maria Nils Olga Peter "
    "Quentin Rosa Simon Tessa Ulrich Vera Walter Xenia Yusuf Zoe Arthur Beatrice Conrad Daphne "
    "Edgar Flora Gideon Hannah Isaac Julia Kurt Leonie Martin Nora Oscar Paula Rupert Sophie Tom "
    "Ursula Victor Wanda Alma Bruno Cecil Dora Emil Frida Gustav Hilda Ivan Judith Karl Lydia"
).split()

THINGS = (
    "harbor lantern bridge garden tower mirror compass kettle ladder anchor basket candle drawer "
    "engine feather glove hammer island jacket kitchen library meadow needle orchard parcel quarry "
    "river saddle tunnel umbrella valley window workshop attic barn cellar depot elevator factory "
    "gallery hangar incubator junction kiosk lighthouse museum nursery office pantry quay reactor "
    "stable theatre warehouse archive bakery chapel dock embassy foundry greenhouse hospital inn "
    "laboratory mill observatory palace refinery school terminal university vineyard well yard "
    "blue box red door green boat silver ship golden ring black horse white stone old clock"
).split()

PLACES = (
    "Paris London Berlin Madrid Rome Vienna Oslo Lisbon Dublin Prague Warsaw Athens Cairo Lima "
    "Tokyo Delhi Nairobi Sydney Toronto Boston Chicago Denver Havana Quito Bogota Accra Tunis "
    "Riga Tallinn Zurich Geneva Milan Naples Porto Seville Lyon Ghent Bruges Leeds York Bath "
    "Kyoto Osaka Seoul Manila Jakarta Perth Hobart Auckland Suva Reno Tulsa Omaha Dallas"
).split()

CAPITALS = {
    "France": "Paris",
    "England": "London",
    "Germany": "Berlin",
    "Spain": "Madrid",
    "Italy": "Rome",
    "Austria": "Vienna",
    "Norway": "Oslo",
    "Portugal": "Lisbon",
    "Ireland": "Dublin",
    "Poland": "Warsaw",
    "Greece": "Athens",
    "Egypt": "Cairo",
    "Peru": "Lima",
    "Japan": "Tokyo",
    "India": "Delhi",
    "Kenya": "Nairobi",
    "Cuba": "Havana",
    "Sweden": "Stockholm",
    "Finland": "Helsinki",
    "Denmark": "Copenhagen",
    "Russia": "Moscow",
    "China": "Beijing",
    "Turkey": "Ankara",
    "Hungary": "Budapest",
}

OPPOSITES = {
    "hot": "cold",
    "big": "small",
    "up": "down",
    "left": "right",
    "day": "night",
    "black": "white",
    "open": "closed",
    "early": "late",
    "fast": "slow",
    "high": "low",
    "old": "new",
    "rich": "poor",
    "hard": "soft",
    "full": "empty",
    "wet": "dry",
    "happy": "sad",
    "strong": "weak",
    "light": "dark",
    "long": "short",
    "near": "far",
    "true": "false",
    "begin": "end",
    "love": "hate",
    "war": "peace",
}

COLOURS = {
    "grass": "green",
    "the sky": "blue",
    "snow": "white",
    "blood": "red",
    "coal": "black",
    "a lemon": "yellow",
    "a banana": "yellow",
    "the sea": "blue",
    "milk": "white",
    "a carrot": "orange",
}

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = (
    "January February March April May June July August September October November December"
).split()
